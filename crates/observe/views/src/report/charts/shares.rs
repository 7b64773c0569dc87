//! The bar of a chain's shares.

use onbeat_document::schema::Share;
use onbeat_document::text::{duration, percent, shorten, xml};
use std::fmt::Write as _;

const COLOURS: usize = 8;

pub(crate) fn share_bar(shares: &[Share]) -> String {
    const W: f64 = 1000.0;
    let mut out = format!(
        "<svg class=\"shares\" viewBox=\"0 0 {W} 26\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"Shares of the latency\">"
    );
    let mut x = 0.0;
    for (share, class) in shares.iter().zip(share_classes(shares)) {
        let w = (share.fraction.clamp(0.0, 1.0) * W).min(W - x);
        let _ = write!(
            out,
            "<rect class=\"{class}\" x=\"{x:.2}\" y=\"0\" width=\"{w:.2}\" height=\"26\"><title>{}\n{} on average, {}</title></rect>",
            xml(&shorten(&share.name, 300)),
            duration(share.mean_ns),
            percent(share.fraction)
        );
        x += w;
    }
    out.push_str("</svg>");
    out
}

pub(crate) fn share_classes(shares: &[Share]) -> Vec<String> {
    let mut next = 0;
    shares
        .iter()
        .map(|s| {
            if s.element == "edge" {
                return "s-edge".to_string();
            }
            next += 1;
            format!("s{}", (next - 1) % COLOURS)
        })
        .collect()
}
