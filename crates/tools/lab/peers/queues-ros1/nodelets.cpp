// ROS 1 nodelets: producer and consumer of one stream in a manager, for the paper's concepts 2 to
// 4.
//
//   policy=topic    concept 2: a topic, whose queue drops the oldest
//   policy=token    concept 3: tokens come back on a topic of their own; without a token the
// producer waits
//   policy=service  concept 4: a service exchanges the full queue for the emptied one
//
// Settings are the arguments of the load service. All nodelets of a process answer through the
// manager's standard output.
#include <nodelet/nodelet.h>
#include <pluginlib/class_list_macros.hpp>
#include <ros/callback_queue.h>
#include <ros/ros.h>
#include <std_msgs/Empty.h>
#include <std_msgs/UInt8MultiArray.h>

#include <chrono>
#include <functional>
#include <memory>

#include "onbeat_queues/Swap.h"

#include "queues.hpp"

namespace onbeat_queues {

/// The state that all nodelets of the process share. The first of them creates it.
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

using Message = std_msgs::UInt8MultiArray;
using Queue = std::vector<Message::ConstPtr>;

/// Creates a message. It is passed by pointer, so that nothing is copied on the way.
Message::ConstPtr message(const queues::Head& head, size_t bytes) {
  auto message = boost::make_shared<Message>();
  message->data.resize(std::max(bytes, sizeof head));
  std::memcpy(message->data.data(), &head, sizeof head);
  return message;
}

/// The way of messages from the producer's thread to the consumer.
class Way {
 public:
  virtual ~Way() = default;
  virtual bool connected() const = 0;
  virtual void send(Message::ConstPtr message) = 0;
  /// Sends the messages that are still held back.
  virtual void flush() {}
};

class Topic : public Way {
 public:
  Topic(ros::NodeHandle node, const queues::Settings& settings)
      : publisher_(node.advertise<Message>(topic(settings),
                                           static_cast<uint32_t>(settings.number("depth")))) {}
  bool connected() const override { return publisher_.getNumSubscribers() > 0; }
  void send(Message::ConstPtr message) override { publisher_.publish(message); }

 private:
  ros::Publisher publisher_;
};

/// Concept 3: the token counter begins at the queue's size.
class Token : public Topic {
 public:
  Token(ros::NodeHandle node, const queues::Settings& settings, const queues::Control& control)
      : Topic(node, settings), control_(control), tokens_(settings.number("depth")) {
    boost::function<void(const std_msgs::Empty::ConstPtr&)> callback =
        [this](const std_msgs::Empty::ConstPtr&) {
          std::lock_guard<std::mutex> lock(mutex_);
          tokens_++;
          changed_.notify_one();
        };
    subscriber_ = node.subscribe<std_msgs::Empty>(
        topic(settings) + "_tokens", static_cast<uint32_t>(settings.number("depth")), callback);
  }
  bool connected() const override {
    return Topic::connected() && subscriber_.getNumPublishers() > 0;
  }
  void send(Message::ConstPtr message) override {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      // The wait checks ten times a second whether the run has ended.
      while (tokens_ == 0 && !control_.stopped())
        changed_.wait_for(lock, std::chrono::milliseconds(100));
      if (tokens_ == 0) return;
      tokens_--;
    }
    Topic::send(message);
  }

 private:
  const queues::Control& control_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t tokens_;
  ros::Subscriber subscriber_;
};

/// Concept 4: the service blocks the producer until the consumer has emptied its queue.
class Service : public Way {
 public:
  Service(ros::NodeHandle node, const queues::Settings& settings)
      : client_(node.serviceClient<Swap>(topic(settings), true)),
        name_(topic(settings)),
        depth_(settings.number("depth")),
        queue_(new Queue) {
    queue_->reserve(depth_);
  }
  bool connected() const override { return ros::service::exists(name_, false); }
  void send(Message::ConstPtr message) override {
    queue_->push_back(message);
    if (queue_->size() == depth_) swap();
  }
  void flush() override {
    if (!queue_->empty()) swap();
  }

 private:
  void swap() {
    Swap call;
    call.request.full = reinterpret_cast<uintptr_t>(queue_);
    if (!client_.call(call)) queues::die("the consumer did not take the full queue");
    queue_ = reinterpret_cast<Queue*>(call.response.emptied);
  }
  ros::ServiceClient client_;
  std::string name_;
  size_t depth_;
  Queue* queue_;
};

class Send : public nodelet::Nodelet {
  void onInit() override {
    auto settings = std::make_shared<queues::Settings>(getMyArgv());
    Process& process = Process::of(*settings);
    auto sender = std::make_shared<queues::Sender>(*settings, settings->number("stream"));
    std::string policy = settings->text("policy");
    if (policy == "topic") way_.reset(new Topic(getNodeHandle(), *settings));
    else if (policy == "token") way_.reset(new Token(getNodeHandle(), *settings, process.control));
    else if (policy == "service") way_.reset(new Service(getNodeHandle(), *settings));
    else queues::die("policy=" + policy + " is not one of topic, token, service");
    // A producer has its own thread, because onInit must return.
    std::thread([this, settings, sender, &process] {
      while (!process.control.stopped() && !way_->connected()) ros::WallDuration(0.005).sleep();
      process.control.ready();
      size_t bytes = settings->number("bytes");
      sender->run(process.control,
                  [&](const queues::Head& head) { way_->send(message(head, bytes)); });
      way_->flush();
    }).detach();
  }
  std::unique_ptr<Way> way_;
};

class Receive : public nodelet::Nodelet {
  void onInit() override {
    queues::Settings settings(getMyArgv());
    Process& process = Process::of(settings);
    receiver_ = std::make_shared<queues::Receiver>(settings, settings.number("stream"));
    process.at_stop([receiver = receiver_] { receiver->write(); });
    if (settings.text("policy") == "service") serve(settings, process);
    else subscribe(settings, process);
    // The producer waits for this consumer and reports when both are connected.
    process.control.ready();
  }

  void subscribe(const queues::Settings& settings, Process& process) {
    auto depth = static_cast<uint32_t>(settings.number("depth"));
    bool token = settings.text("policy") == "token";
    if (token)
      tokens_ = getNodeHandle().advertise<std_msgs::Empty>(topic(settings) + "_tokens", depth);
    boost::function<void(const Message::ConstPtr&)> callback =
        [this, token, &process](const Message::ConstPtr& message) {
          // As in the paper, the consumer gives the token back when it receives the message.
          if (token) tokens_.publish(boost::make_shared<std_msgs::Empty>());
          receiver_->process(message->data.data(), message->data.size(), process.control);
        };
    subscriber_ = getNodeHandle().subscribe<Message>(topic(settings), depth, callback);
  }

  /// One thread takes a full queue, returns the emptied one for it, and processes the messages as
  /// fast as it can. It answers the service only when its own queue is empty.
  void serve(const queues::Settings& settings, Process& process) {
    queue_ = new Queue;
    queue_->reserve(settings.number("depth"));
    boost::function<bool(Swap::Request&, Swap::Response&)> callback =
        [this](Swap::Request& request, Swap::Response& response) {
          response.emptied = reinterpret_cast<uintptr_t>(queue_);
          queue_ = reinterpret_cast<Queue*>(request.full);
          return true;
        };
    ros::NodeHandle node(getNodeHandle());
    node.setCallbackQueue(&requests_);
    server_ = node.advertiseService<Swap::Request, Swap::Response>(topic(settings), callback);
    std::thread([this, &process] {
      while (!process.control.stopped()) {
        requests_.callOne(ros::WallDuration(0.1));
        for (const auto& message : *queue_)
          receiver_->process(message->data.data(), message->data.size(), process.control);
        queue_->clear();
      }
    }).detach();
  }

  std::shared_ptr<queues::Receiver> receiver_;
  ros::Subscriber subscriber_;
  ros::Publisher tokens_;
  ros::CallbackQueue requests_;
  ros::ServiceServer server_;
  Queue* queue_ = nullptr;
};

}  // namespace onbeat_queues

PLUGINLIB_EXPORT_CLASS(onbeat_queues::Send, nodelet::Nodelet)
PLUGINLIB_EXPORT_CLASS(onbeat_queues::Receive, nodelet::Nodelet)
