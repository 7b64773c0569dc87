//! Writes findings for other programs: JSON, JUnit XML for the test reports of a build server, and
//! SARIF for its code view.

use crate::judge::{Finding, Verdict};
use onbeat_document::text::{visible, xml};
use serde_json::{json, Value};

fn counts(findings: &[Finding]) -> [usize; 3] {
    [Verdict::Passed, Verdict::NotKnown, Verdict::Violated]
        .map(|v| findings.iter().filter(|f| f.verdict == v).count())
}

/// Returns all findings as JSON, with the count of each verdict and the worst one.
pub fn json(findings: &[Finding]) -> Value {
    let [passed, not_known, violated] = counts(findings);
    json!({
        "verdict": crate::verdict(findings),
        "passed": passed,
        "not_known": not_known,
        "violated": violated,
        "findings": findings,
    })
}

fn sentence(f: &Finding) -> String {
    let mut text = format!("{}: {}", f.subject, f.verdict.text());
    if !f.limit.is_empty() {
        text += &format!(", required {}", f.limit);
    }
    if !f.measured.is_empty() {
        text += &format!(", measured {}", f.measured);
    }
    if !f.why.is_empty() {
        text += &format!(" ({})", f.why);
    }
    for said in f.late.iter().chain(&f.lost) {
        text += &format!(". {said}");
    }
    visible(&text)
}

/// Returns JUnit XML with one test case per finding. A violated requirement is a failure. A
/// requirement that is not known is an error. Failures and errors both fail a build.
pub fn junit(findings: &[Finding], name: &str) -> String {
    let [_, not_known, violated] = counts(findings);
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuites>\n<testsuite name=\"{}\" tests=\"{}\" failures=\"{violated}\" errors=\"{not_known}\">\n",
        xml(name),
        findings.len()
    );
    for f in findings {
        let (class, case) = (xml(&f.subject), xml(&f.requirement));
        out += &format!("<testcase classname=\"{class}\" name=\"{case}\"");
        let said = xml(&sentence(f));
        out += &match f.verdict {
            Verdict::Passed => "/>\n".to_string(),
            Verdict::NotKnown => format!("><error message=\"{said}\"/></testcase>\n"),
            Verdict::Violated => format!("><failure message=\"{said}\"/></testcase>\n"),
        };
    }
    out + "</testsuite>\n</testsuites>\n"
}

/// Returns SARIF 2.1.0 with one result per requirement that did not pass, at its place in the
/// requirements file.
pub fn sarif(findings: &[Finding], file: &str) -> Value {
    let open = findings.iter().filter(|f| f.verdict != Verdict::Passed);
    let results: Vec<Value> = open
        .map(|f| {
            json!({
                "ruleId": visible(&f.requirement),
                "level": if f.verdict == Verdict::Violated { "error" } else { "warning" },
                "message": { "text": sentence(f) },
                "locations": [{
                    "physicalLocation": { "artifactLocation": { "uri": file } },
                    "logicalLocations": [{ "fullyQualifiedName": visible(&f.subject) }],
                }],
            })
        })
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "onbeat check", "version": env!("CARGO_PKG_VERSION") } },
            "results": results,
        }],
    })
}
