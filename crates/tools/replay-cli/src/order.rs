//! Carries out the orders of a user while a recording is played. They come by keys or over a
//! socket.

use onbeat_replay::control::{Control, State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const MOST_STEPS: u32 = 1_000_000;

/// An order to a running replay. As a line of JSON, it looks like `{"do": "seek", "to_s": 12.5}`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    Pause {},
    Continue {},
    /// Pauses the replay, or continues a paused replay.
    Toggle {},
    /// Plays the next `items` items, then pauses.
    Step {
        #[serde(default = "one")]
        items: u32,
    },
    Rate {
        factor: f64,
    },
    Faster {},
    Slower {},
    /// Continues at another recorded time: `to_s` seconds after the first item, or `by_s` seconds
    /// after the present position. A negative `by_s` goes back.
    Seek {
        #[serde(default)]
        to_s: Option<f64>,
        #[serde(default)]
        by_s: Option<f64>,
    },
    State {},
    Stop {},
}

fn one() -> u32 {
    1
}

impl Order {
    pub fn by(by_s: f64) -> Order {
        Order::Seek {
            to_s: None,
            by_s: Some(by_s),
        }
    }
}

/// Carries out orders to a running replay. To do so, it only sets atomic values, which the player
/// reads.
#[derive(Clone)]
pub struct Orders {
    pub control: Arc<Control>,
    /// The reason why the rate cannot be changed. `None` if it can be changed.
    pub no_rate: Option<&'static str>,
    /// The reason why the user cannot seek. `None` if seeking is possible.
    pub no_seek: Option<&'static str>,
}

impl Orders {
    pub fn carry_out(&self, order: Order) -> Result<(), String> {
        let control = &self.control;
        match order {
            Order::Pause {} => control.pause(),
            Order::Continue {} => control.go_on(),
            Order::Toggle {} if control.state().paused => control.go_on(),
            Order::Toggle {} => control.pause(),
            Order::Step { items } if items <= MOST_STEPS => {
                control.pause();
                (0..items).for_each(|_| control.step());
            }
            Order::Step { .. } => {
                return Err(format!(
                    "one order `step` can play at most {MOST_STEPS} items"
                ))
            }
            Order::Rate { factor } => self.rate(factor)?,
            Order::Faster {} => self.rate(next_rate(self.present_rate(), true))?,
            Order::Slower {} => self.rate(next_rate(self.present_rate(), false))?,
            Order::Seek { to_s, by_s } => self.seek(to_s, by_s)?,
            Order::State {} => {}
            Order::Stop {} => control.stop(),
        }
        Ok(())
    }

    fn present_rate(&self) -> f64 {
        self.control.state().rate.unwrap_or(1.0)
    }

    fn rate(&self, factor: f64) -> Result<(), String> {
        if let Some(why) = self.no_rate {
            return Err(why.into());
        }
        match self.control.set_rate(factor) {
            true => Ok(()),
            false => Err("the factor of the rate must be from 0.000001 to 1000000".into()),
        }
    }

    fn seek(&self, to_s: Option<f64>, by_s: Option<f64>) -> Result<(), String> {
        if let Some(why) = self.no_seek {
            return Err(why.into());
        }
        let state = self.control.state();
        let to_ns = match (to_s, by_s) {
            (Some(to_s), None) => to_s * 1e9,
            (None, Some(by_s)) => state.position_ns as f64 + by_s * 1e9,
            _ => return Err("state either to_s or by_s".into()),
        };
        if !to_ns.is_finite() {
            return Err("the time at which to continue is out of range".into());
        }
        // The conversion limits the number to the range of i64.
        match self.control.seek(to_ns as i64) {
            true => Ok(()),
            false => Err("the replay has not begun, or has ended".into()),
        }
    }
}

/// Returns the next higher or lower rate of the series 0.1, 0.2, 0.5, 1, 2, 5, 10.
fn next_rate(rate: f64, is_faster: bool) -> f64 {
    let steps = (-6..=6).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
    let mut steps = steps.filter(|step| (1e-6..=1e6).contains(step));
    let margin = 1.0 + 1e-9;
    let next = match is_faster {
        true => steps.find(|&step| step > rate * margin),
        false => steps.take_while(|&step| step * margin < rate).last(),
    };
    next.unwrap_or(rate)
}

#[derive(Debug, Serialize)]
pub struct Shown {
    began: bool,
    paused: bool,
    /// True while the player has not yet reached the position that the user last sought.
    seeks: bool,
    /// The rate of playback: recorded seconds per second. `None` if the consumer sets the pace.
    rate: Option<f64>,
    position_s: f64,
    /// The recorded time from the current item to the latest item in the buffer, in seconds.
    ahead_s: f64,
    /// The share of the playback buffer that is full, from 0 to 1.
    fill: f64,
    read: u64,
    played: u64,
    starved: u64,
    max_late_ns: u64,
}

impl From<State> for Shown {
    fn from(state: State) -> Shown {
        Shown {
            began: state.began,
            paused: state.paused,
            seeks: state.seeks,
            rate: state.rate,
            position_s: state.position_ns as f64 / 1e9,
            ahead_s: state.ahead_ns.max(0) as f64 / 1e9,
            fill: f64::from(state.fill) / 1e3,
            read: state.read,
            played: state.played,
            starved: state.starved,
            max_late_ns: state.max_late_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_playback_rate_up_or_down_is_the_neighbour_in_the_series() {
        for (rate, up, down) in [(1.0, 2.0, 0.5), (3.0, 5.0, 2.0), (0.5, 1.0, 0.2)] {
            assert!((next_rate(rate, true) - up).abs() < 1e-9, "{rate}");
            assert!((next_rate(rate, false) - down).abs() < 1e-9, "{rate}");
        }
        assert_eq!((next_rate(1e6, true), next_rate(1e-6, false)), (1e6, 1e-6));
    }

    #[test]
    fn orders_that_are_not_possible_are_refused_with_the_reason() {
        let orders = Orders {
            control: Arc::default(),
            no_rate: None,
            no_seek: Some("it comes once"),
        };
        let refused = |order| orders.carry_out(order).unwrap_err();
        assert_eq!(refused(Order::by(1.0)), "it comes once");
        assert!(refused(Order::Rate { factor: 0.0 }).contains("0.000001"));
        assert!(refused(Order::Step { items: u32::MAX }).contains("at most"));
        let orders = Orders {
            no_seek: None,
            no_rate: Some("not now"),
            ..orders.clone()
        };
        let refused = |order| orders.carry_out(order).unwrap_err();
        assert_eq!(refused(Order::Faster {}), "not now");
        assert!(refused(Order::by(1.0)).contains("not begun"));
        assert!(refused(Order::by(f64::NAN)).contains("out of range"));
        assert!(refused(Order::Seek {
            to_s: None,
            by_s: None
        })
        .contains("either"));
        orders.carry_out(Order::Toggle {}).unwrap();
        assert!(orders.control.state().paused);
        orders.carry_out(Order::Continue {}).unwrap();
        assert!(!orders.control.state().paused);
    }
}
