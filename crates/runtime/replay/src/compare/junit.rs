//! Writes a comparison as JUnit XML for the test reports of a build server.

use super::figures::{Compared, Verdict};

/// Returns JUnit XML with one test case for each topic and aspect. An aspect with the verdict
/// [`Verdict::Different`] is a failure. An aspect with the verdict [`Verdict::NotKnown`] is an
/// error. Failures and errors fail a build. The function `duration` formats times, and `escaped`
/// escapes a text for XML.
pub fn junit(
    compared: &Compared,
    name: &str,
    duration: &dyn Fn(i64) -> String,
    escaped: &dyn Fn(&str) -> String,
) -> String {
    let mut cases = String::new();
    let (mut tests, mut failures, mut errors) = (0, 0, 0);
    for topic in &compared.topics {
        for aspect in topic.aspects(duration) {
            tests += 1;
            cases += &format!(
                "<testcase classname=\"{}\" name=\"{}\"",
                escaped(&topic.name),
                escaped(aspect.name)
            );
            let said = escaped(&aspect.said);
            cases += &match aspect.verdict {
                Verdict::Equal => "/>\n".to_string(),
                Verdict::NotKnown => {
                    errors += 1;
                    format!("><error message=\"{said}\"/></testcase>\n")
                }
                Verdict::Different => {
                    failures += 1;
                    format!("><failure message=\"{said}\"/></testcase>\n")
                }
            };
        }
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"{}\" tests=\"{tests}\" \
         failures=\"{failures}\" errors=\"{errors}\">\n{cases}</testsuite>\n</testsuites>\n",
        escaped(name)
    )
}
