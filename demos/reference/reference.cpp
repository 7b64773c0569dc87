// A graph as that of Autoware's reference system: 24 nodes in one process, in three forms.
//
// reference single|multi|group [MS]: one single-threaded executor, one of three threads, or an executor and a
// thread for each callback group. MS is the time on the CPU of one callback, 2 ms if it is left out.
#include <ctime>

#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "geometry_msgs/msg/point_stamped.hpp"
#include "rclcpp/rclcpp.hpp"

using Message = geometry_msgs::msg::PointStamped;

namespace {

double burn_ms = 2;
std::vector<rclcpp::Node::SharedPtr> nodes;
// What the executors do not own.
std::vector<std::shared_ptr<void>> kept;

// Works for so many times MS on the CPU.
void burn(double times) {
  const auto now = [] {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
  };
  for (const double end = now() + times * burn_ms; now() < end;) {
  }
}

rclcpp::Node::SharedPtr node(const std::string &name) {
  nodes.push_back(std::make_shared<rclcpp::Node>(name));
  return nodes.back();
}

rclcpp::Publisher<Message>::SharedPtr out(const rclcpp::Node::SharedPtr &of, const std::string &topic) {
  return of->create_publisher<Message>("/" + topic, 10);
}

template <class Then>
void on(const rclcpp::Node::SharedPtr &of, const std::string &topic, Then then) {
  kept.push_back(of->create_subscription<Message>("/" + topic, 10, then));
}

template <class Then>
void every(const rclcpp::Node::SharedPtr &of, int ms, Then then) {
  kept.push_back(of->create_wall_timer(std::chrono::milliseconds(ms), then));
}

// Publishes every so many ms.
void sensor(const std::string &name, int ms) {
  const auto self = node(name);
  const auto to = out(self, name);
  every(self, ms, [=] {
    burn(0.025);
    Message message;
    message.header.stamp = self->now();
    to->publish(message);
  });
}

// Publishes on each input.
void transform(const std::string &name, const std::string &input, const std::string &output = "") {
  const auto self = nodes.back()->get_name() == name ? nodes.back() : node(name);
  const auto to = out(self, output.empty() ? name : output);
  on(self, input, [=](const Message &message) {
    burn(1);
    to->publish(message);
  });
}

// Stores its two inputs; publishes when both are there, and clears them. Its two callbacks are of one
// mutually exclusive group.
void fusion(const std::string &name, const std::string &first, const std::string &second) {
  const auto self = node(name);
  const auto to = out(self, name);
  const auto stored = std::make_shared<std::map<std::string, Message>>();
  for (const auto &input : {first, second}) {
    on(self, input, [=](const Message &message) {
      (*stored)[input] = message;
      if (stored->size() == 2) {
        burn(1);
        stored->clear();
        to->publish(message);
      }
    });
  }
}

// Stores its inputs and publishes every so many ms.
void planner(const std::string &name, const std::vector<std::string> &inputs, int ms) {
  const auto self = node(name);
  const auto to = out(self, name);
  const auto last = std::make_shared<Message>();
  for (const auto &input : inputs) {
    on(self, input, [=](const Message &message) { *last = message; });
  }
  every(self, ms, [=] {
    burn(1);
    to->publish(*last);
  });
}

// Takes its input.
void sink(const std::string &name, const std::string &input) {
  on(node(name), input, [](const Message &) { burn(0.1); });
}

void graph() {
  sensor("FrontLidarDriver", 100);
  sensor("RearLidarDriver", 100);
  sensor("PointCloudMap", 120);
  sensor("Visualizer", 60);
  sensor("Lanelet2Map", 100);
  sensor("EuclideanClusterSettings", 25);
  transform("PointsTransformerFront", "FrontLidarDriver");
  transform("PointsTransformerRear", "RearLidarDriver");
  fusion("PointCloudFusion", "PointsTransformerFront", "PointsTransformerRear");
  transform("VoxelGridDownsampler", "PointCloudFusion");
  transform("PointCloudMapLoader", "PointCloudMap");
  transform("RayGroundFilter", "PointCloudFusion");
  fusion("NDTLocalizer", "VoxelGridDownsampler", "PointCloudMapLoader");
  fusion("Lanelet2GlobalPlanner", "Visualizer", "NDTLocalizer");
  fusion("Lanelet2MapLoader", "Lanelet2Map", "Lanelet2GlobalPlanner");
  transform("ParkingPlanner", "Lanelet2MapLoader");
  transform("LanePlanner", "Lanelet2MapLoader");
  transform("EuclideanClusterDetector", "RayGroundFilter");
  transform("EuclideanClusterDetector", "EuclideanClusterSettings", "EuclideanIntersection");
  transform("ObjectCollisionEstimator", "EuclideanClusterDetector");
  planner("BehaviorPlanner",
          {"ObjectCollisionEstimator", "NDTLocalizer", "Lanelet2GlobalPlanner", "Lanelet2MapLoader",
           "ParkingPlanner", "LanePlanner"},
          100);
  transform("MPCController", "BehaviorPlanner");
  fusion("VehicleInterface", "MPCController", "BehaviorPlanner");
  sink("VehicleDBWSystem", "VehicleInterface");
  sink("IntersectionOutput", "EuclideanIntersection");
}

// An executor and a thread for each callback group.
void spin_groups() {
  std::vector<std::thread> threads;
  std::vector<std::shared_ptr<rclcpp::executors::SingleThreadedExecutor>> executors;
  for (const auto &node : nodes) {
    node->for_each_callback_group([&](const rclcpp::CallbackGroup::SharedPtr &group) {
      const auto executor = std::make_shared<rclcpp::executors::SingleThreadedExecutor>();
      executor->add_callback_group(group, node->get_node_base_interface());
      executors.push_back(executor);
      threads.emplace_back([executor] { executor->spin(); });
    });
  }
  for (auto &thread : threads) {
    thread.join();
  }
}

}  // namespace

int main(int argc, char **argv) {
  const auto words = rclcpp::init_and_remove_ros_arguments(argc, argv);
  const std::string form = words.size() > 1 ? words[1] : "single";
  if (words.size() > 2) {
    burn_ms = std::atof(words[2].c_str());
  }
  graph();
  if (form == "group") {
    spin_groups();
  } else {
    const auto options = rclcpp::ExecutorOptions();
    std::unique_ptr<rclcpp::Executor> executor;
    if (form == "multi") {
      executor = std::make_unique<rclcpp::executors::MultiThreadedExecutor>(options, 3);
    } else {
      executor = std::make_unique<rclcpp::executors::SingleThreadedExecutor>(options);
    }
    for (const auto &node : nodes) {
      executor->add_node(node);
    }
    executor->spin();
  }
  // Before what rclcpp itself keeps until the process ends.
  kept.clear();
  nodes.clear();
  rclcpp::shutdown();
  return 0;
}
