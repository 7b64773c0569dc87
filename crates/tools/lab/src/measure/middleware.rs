//! Builds programs of `crates/tools/lab/peers` on the measured middlewares.

use crate::frame::programs::output;
use crate::frame::{cache_dir, files, LabError, Result};
use crate::measure::{native, ros};
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Source<'a> {
    pub name: &'a str,
    pub files: Vec<PathBuf>,
    pub included: Vec<PathBuf>,
}

impl Source<'_> {
    pub fn plain(self) -> Result<PathBuf> {
        self.build("cc", ["-std=gnu11"].map(String::from).to_vec())
    }

    pub fn on_cyclone(mut self, idl: &Path, experiment: &str) -> Result<PathBuf> {
        const FIX: &str = "install cyclonedds-dev and cyclonedds-tools";
        if !Path::new("/usr/include/dds/dds.h").is_file() {
            return Err(missing("Cyclone DDS", FIX, experiment));
        }
        let generated = cache_dir().join("lab").join(format!("{experiment}-idl"));
        files::make_dir(&generated)?;
        let mut idlc = Command::new("idlc");
        idlc.args(["-x", "final"]).arg(idl).current_dir(&generated);
        output(&mut idlc, "idlc", FIX)?;
        self.files.push(generated.join("message.c"));
        self.included.push(idl.to_path_buf());
        let include = format!("-I{}", generated.display());
        self.build("cc", vec!["-std=gnu11".into(), include, "-lddsc".into()])
    }

    pub fn on_fast(self, experiment: &str) -> Result<PathBuf> {
        if !Path::new("/usr/include/fastrtps").is_dir() {
            return Err(missing("Fast DDS", "install libfastrtps-dev", experiment));
        }
        let arguments = ["-std=c++17", "-lfastrtps", "-lfastcdr"].map(String::from);
        self.build("c++", arguments.to_vec())
    }

    pub fn on_rcl(mut self, env: &Path) -> Result<PathBuf> {
        let stubs = cache_dir().join(format!("lab/{}-python-symbols.c", self.name));
        let text = ros::with_python_symbols("// Empty definitions for the linker.", env)?;
        files::make_dir(&cache_dir().join("lab"))?;
        std::fs::write(&stubs, text).map_err(LabError::file("writing", &stubs))?;
        self.files.push(stubs);
        let mut arguments = vec!["-std=gnu11".to_string()];
        arguments.extend(ros::link_arguments(env, &ros::STD_MSGS)?);
        self.build("cc", arguments)
    }

    fn build(self, compiler: &str, arguments: Vec<String>) -> Result<PathBuf> {
        let Source {
            name,
            files,
            included,
        } = self;
        native::build(name, compiler, &files, &included, &arguments)
    }
}

fn missing(what: &str, packages: &str, experiment: &str) -> LabError {
    LabError::Missing {
        what: what.into(),
        fix: format!("{packages} or run `./dev bench {experiment}`"),
    }
}
