// ROS 1 nodelets: producer and consumer of one stream within a manager (concept 2).
//
// Their settings come as arguments of the load service. All of them together answer through the
// manager's standard output.
#include <nodelet/nodelet.h>
#include <pluginlib/class_list_macros.hpp>
#include <ros/ros.h>
#include <std_msgs/UInt8MultiArray.h>

#include <functional>
#include <memory>

#include "queues.hpp"

namespace onbeat_queues {

/// What all nodelets of the process have in common; made by the first of them.
class Process {
 public:
  static Process& of(const queues::Settings& settings) {
    static Process* process = new Process(2 * settings.number("count"));
    return *process;
  }
  queues::Control control;

  void at_stop(std::function<void()> write) {
    std::lock_guard<std::mutex> lock(mutex_);
    writers_.push_back(std::move(write));
  }

 private:
  explicit Process(size_t parts) : control(parts) {
    std::thread([this] {
      control.wait_stop();
      std::lock_guard<std::mutex> lock(mutex_);
      for (auto& write : writers_) write();
      protocol_written();
      _exit(0);
    }).detach();
  }
  std::mutex mutex_;
  std::vector<std::function<void()>> writers_;
};

std::string topic(const queues::Settings& settings) {
  return "/" + settings.text("name") + "_" + settings.text("stream");
}

class Send : public nodelet::Nodelet {
  void onInit() override {
    auto settings = std::make_shared<queues::Settings>(getMyArgv());
    Process& process = Process::of(*settings);
    auto sender = std::make_shared<queues::Sender>(*settings, settings->number("stream"));
    publisher_ = getNodeHandle().advertise<std_msgs::UInt8MultiArray>(
        topic(*settings), static_cast<uint32_t>(settings->number("depth")));
    // onInit must return: a producer has a thread of its own.
    std::thread([this, settings, sender, &process] {
      while (!process.control.stopped() && publisher_.getNumSubscribers() == 0)
        ros::WallDuration(0.005).sleep();
      process.control.ready();
      size_t bytes = std::max(settings->number("bytes"), sizeof(queues::Head));
      sender->run(process.control, [&](const queues::Head& head) {
        // By pointer, so that nothing is copied on the way; so each message is a new one.
        auto message = boost::make_shared<std_msgs::UInt8MultiArray>();
        message->data.resize(bytes);
        std::memcpy(message->data.data(), &head, sizeof head);
        publisher_.publish(message);
      });
    }).detach();
  }
  ros::Publisher publisher_;
};

class Receive : public nodelet::Nodelet {
  void onInit() override {
    queues::Settings settings(getMyArgv());
    Process& process = Process::of(settings);
    auto receiver = std::make_shared<queues::Receiver>(settings, settings.number("stream"));
    process.at_stop([receiver] { receiver->write(); });
    boost::function<void(const std_msgs::UInt8MultiArray::ConstPtr&)> callback =
        [receiver, &process](const std_msgs::UInt8MultiArray::ConstPtr& message) {
          receiver->process(message->data.data(), message->data.size(), process.control);
        };
    subscriber_ = getNodeHandle().subscribe<std_msgs::UInt8MultiArray>(
        topic(settings), static_cast<uint32_t>(settings.number("depth")), callback);
    // Its producer, which waits for it, says when both are connected.
    process.control.ready();
  }
  ros::Subscriber subscriber_;
};

}  // namespace onbeat_queues

PLUGINLIB_EXPORT_CLASS(onbeat_queues::Send, nodelet::Nodelet)
PLUGINLIB_EXPORT_CLASS(onbeat_queues::Receive, nodelet::Nodelet)
