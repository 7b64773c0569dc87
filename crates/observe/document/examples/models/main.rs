//! Writes example models (parking.json, sixty.json, hostile.json, empty.json) into a directory:
//! `cargo run -p onbeat-document --example models -- DIR`.
#[path = "generate.rs"]
mod generate;

fn main() -> std::io::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    std::fs::create_dir_all(&directory)?;
    for (name, model) in generate::all() {
        let path = std::path::Path::new(&directory).join(format!("{name}.json"));
        std::fs::write(&path, serde_json::to_string_pretty(&model)?)?;
        println!("{}", path.display());
    }
    Ok(())
}
