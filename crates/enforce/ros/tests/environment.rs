//! Tests that the environment of a real ROS 2 process is enough to load its librcl in another
//! process.

use onbeat_ros::environment::Environment;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const NODE: &str = "import rclpy, sys\nrclpy.init()\nprint('up', flush=True)\nsys.stdin.read()";

#[test]
fn the_environment_of_a_running_node_is_enough_to_load_its_librcl() {
    let cache = std::env::var_os("ONBEAT_CACHE").map(PathBuf::from);
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let cache = cache.unwrap_or_else(|| home.join(".cache/onbeat"));
    for distribution in ["ros-kilted", "ros-jazzy"] {
        let python = cache.join(distribution).join("bin/python");
        if !python.exists() {
            println!(
                "SKIPPED the_environment_of_a_running_node_is_enough_to_load_its_librcl: no {}: make it with ./dev ros-env",
                python.display()
            );
            continue;
        }
        let mut node = Command::new(&python)
            .args(["-c", NODE])
            .env("ROS_DOMAIN_ID", "77")
            .env("ONBEAT_SECRET", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(node.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let found = Environment::of_process(node.id());
        drop(node.stdin.take());
        node.wait().unwrap();
        let found = found.unwrap();
        assert!(found.rcl.starts_with(cache.join(distribution)));
        let has = |name: &str| found.variables.iter().any(|(n, _)| n == name);
        assert!(has("ROS_DOMAIN_ID") && !has("ONBEAT_SECRET"));
        // The linker finds all libraries that librcl needs with these variables alone.
        let ldd = Command::new("/usr/bin/ldd")
            .arg(&found.rcl)
            .env_clear()
            .envs(found.variables)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ldd.stdout);
        assert!(said.contains("librcutils.so => "), "{said}");
        assert!(!said.contains("not found"), "{said}");
    }
}
