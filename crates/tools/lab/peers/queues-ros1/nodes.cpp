// ROS 1 nodes: a publisher or a subscriber of one stream (concept 1), and a loader of nodelets.
//
//   queues-ros1 role=send|receive ...  one stream
//   queues-ros1 role=load manager=/NAME ...  makes a nodelet manager load a producer and a consumer
//                                            for each stream, and ends
#include <nodelet/NodeletLoad.h>
#include <ros/ros.h>
#include <std_msgs/UInt8MultiArray.h>

#include "queues.hpp"

namespace {

using queues::Control;
using queues::Settings;

std::string topic(const Settings& settings, size_t k) {
  return "/" + settings.text("name") + "_" + std::to_string(k);
}

void wait_for(const Control& control, const std::function<bool()>& connected) {
  while (ros::ok() && !control.stopped() && !connected()) ros::WallDuration(0.005).sleep();
}

void send(const Settings& settings, size_t k) {
  ros::NodeHandle node;
  Control control(1);
  queues::Sender sender(settings, k);
  ros::Publisher publisher = node.advertise<std_msgs::UInt8MultiArray>(
      topic(settings, k), static_cast<uint32_t>(settings.number("depth")));
  wait_for(control, [&] { return publisher.getNumSubscribers() > 0; });
  control.ready();
  std_msgs::UInt8MultiArray message;
  message.data.resize(std::max(settings.number("bytes"), sizeof(queues::Head)));
  sender.run(control, [&](const queues::Head& head) {
    std::memcpy(message.data.data(), &head, sizeof head);
    publisher.publish(message);
  });
  control.wait_stop();
  protocol_written();
}

void receive(const Settings& settings, size_t k) {
  ros::NodeHandle node;
  Control control(1);
  queues::Receiver receiver(settings, k);
  boost::function<void(const std_msgs::UInt8MultiArray::ConstPtr&)> callback =
      [&](const std_msgs::UInt8MultiArray::ConstPtr& message) {
        receiver.process(message->data.data(), message->data.size(), control);
      };
  // By default TCPROS uses Nagle's algorithm, which holds small messages back for up to 40 ms.
  ros::TransportHints hints;
  if (settings.text("policy") == "topic-nodelay") hints.tcpNoDelay();
  ros::Subscriber subscriber = node.subscribe<std_msgs::UInt8MultiArray>(
      topic(settings, k), static_cast<uint32_t>(settings.number("depth")), callback,
      ros::VoidConstPtr(), hints);
  ros::AsyncSpinner spinner(1);
  spinner.start();
  wait_for(control, [&] { return subscriber.getNumPublishers() > 0; });
  control.ready();
  control.wait_stop();
  spinner.stop();
  receiver.write();
  protocol_written();
}

void load(const Settings& settings) {
  ros::NodeHandle node;
  std::string manager = settings.text("manager");
  ros::ServiceClient client = node.serviceClient<nodelet::NodeletLoad>(manager + "/load_nodelet");
  if (!client.waitForExistence(ros::Duration(30))) queues::die("cannot reach the nodelet manager " + manager);
  for (size_t k = 0; k < settings.number("count"); k++) {
    for (std::string part : {"Receive", "Send"}) {
      nodelet::NodeletLoad call;
      call.request.name = manager + "_" + part + std::to_string(k);
      call.request.type = "onbeat_queues/" + part;
      call.request.my_argv = settings.words();
      call.request.my_argv.push_back("stream=" + std::to_string(k));
      if (!client.call(call) || !call.response.success)
        queues::die("the manager could not load " + call.request.type);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings(argc, argv);
  std::string role = settings.text("role");
  size_t k = role == "load" ? 0 : settings.number("first");
  ros::init(argc, argv, settings.text("name") + "_" + role + std::to_string(k),
            ros::init_options::NoSigintHandler);
  if (role == "send") send(settings, k);
  else if (role == "receive") receive(settings, k);
  else if (role == "load") load(settings);
  else queues::die("role=" + role + " is not one of send, receive, load");
  ros::shutdown();
  // Nothing more is destroyed, because roscpp's threads may still be running.
  _exit(0);
}
