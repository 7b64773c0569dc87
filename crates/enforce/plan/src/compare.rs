//! Plans one request with every strategy, to compare their promises.

use crate::error::PlanError;
use crate::make::plan;
use crate::request::{Request, Strategy};
use crate::schema::Promises;
use onbeat_document::Model;

/// The largest number of bands that [`compare`] plans with.
pub const COMPARE_UP_TO: usize = 8;

/// Plans the request with every strategy, and returns the promises or the error by the strategy's
/// name. The result corresponds to Tables 4.4 and 4.5 and Figure 4.7 of the thesis.
pub fn compare(model: &Model, request: &Request) -> Vec<(String, Result<Promises, PlanError>)> {
    let one_band = Strategy::Bands(1);
    let random = Strategy::RandomBands { bands: 3, seed: 1 };
    let mut all = vec![
        ("fifo".to_string(), Strategy::Fifo),
        ("server-per-callback".into(), Strategy::ServerPerCallback),
        ("server-per-chain".into(), Strategy::ServerPerChain),
        ("bands --bands 1".into(), one_band),
    ];
    for count in 2..=COMPARE_UP_TO {
        all.push((format!("bands --bands {count}"), Strategy::Bands(count)));
    }
    all.push(("bands --bands 3 --random".into(), random));
    all.push(("let-per-chain".into(), Strategy::LetPerChain));
    all.push(("let-per-callback".into(), Strategy::LetPerCallback));
    let of = |(name, strategy)| {
        let mut request = Request {
            strategy,
            ..request.clone()
        };
        if !strategy.has_bands() {
            // The other strategies have no last slot.
            request.outputs.miss = None;
        }
        (name, plan(model, &request).map(|p| p.promises))
    };
    all.into_iter().map(of).collect()
}
