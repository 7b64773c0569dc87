//! Runs the shaper alone, for tests that do not need the rest of onbeat. `shaper FILE` does the
//! same as `onbeat shaper`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The word `shaper` may come first, as with onbeat.
    let path = std::env::args().next_back().ok_or("usage: shaper FILE")?;
    let config = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    if let Err(e) = onbeat_ros::shaper::run(&config) {
        eprintln!("shaper: {e}");
        std::process::exit(1);
    }
    Ok(())
}
