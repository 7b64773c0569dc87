//! The settings of this program, as `../../../../README.md` lists them.

use onbeat_flow::{Options, Policy};
use onbeat_peers::protocol::Words;

pub struct Settings(Words);

impl Settings {
    pub fn of_command_line() -> Settings {
        Settings(Words::of_command_line())
    }

    pub fn text(&self, name: &str) -> Result<&str, String> {
        self.0.text(name)
    }

    pub fn number(&self, name: &str) -> Result<usize, String> {
        self.0.number(name)
    }

    pub fn streams(&self) -> Result<std::ops::Range<usize>, String> {
        let first = self.number("first")?;
        Ok(first..first + self.number("count")?)
    }

    pub fn options(&self) -> Result<Options, String> {
        let depth = self.number("depth")?;
        let policy = match self.text("policy")? {
            "drop-oldest" => Policy::DropOldest { depth },
            "credit" => Policy::Credit { credits: depth },
            "swap" => Policy::Swap {
                length: depth,
                flush: false,
            },
            "swap-flush" => Policy::Swap {
                length: depth,
                flush: true,
            },
            other => {
                return Err(format!(
                    "policy={other} is not one of drop-oldest, credit, swap, swap-flush"
                ))
            }
        };
        Ok(Options {
            consumers: 1,
            ..Options::new(policy, self.number("bytes")?)
        })
    }
}
