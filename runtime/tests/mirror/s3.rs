//! A mirror in a store that speaks S3, over HTTP.

use std::process::Command;

use super::jobs::killed_and_brought_back;
use super::moto::Moto;
use super::program::{has, said};
use super::site::Site;

/// All that `sardana checkpoints` says with these arguments, when it ends with this code.
fn says(site: &Site, moto: &Moto, line: &str, code: i32) -> String {
    said(moto.show(&mut site.command(line)), code).concat()
}

#[test]
fn checkpoints_get_to_s3_and_back() {
    let Some(moto) = Moto::start() else { return };
    let site = Site::with(&[10, 20, 30]);
    let done = |line: &str, words: &[&str]| has(&says(&site, &moto, line, 0), words);
    let m = "s3://bucket/jobs/digits";
    done(
        &format!("copy a {m} all"),
        &["copied s10", "copied s30", "1 object of 1.00 MiB written, 1 already there"],
    );
    done(
        &format!("copy a {m} all --compare"),
        &["0 objects of 0 B written, 2 already there"],
    );
    done(&format!("list {m}"), &["s10", "s20", "s30", "whole", "3 checkpoints"]);
    done(&format!("verify {m}"), &["0 not", "s20", ": whole, state"]);
    done(&format!("copy {m} b"), &["copied s30", "4 pieces of"]);
    site.done("verify b");
    let shown = ["a", "b"].map(|name| site.json(&format!("show {name} 30"))["state"].clone());
    assert_eq!(shown[0], shown[1]);
    done(
        &format!("prune {m} --keep last=1"),
        &["deleted s10", "deleted s20", "2 objects of"],
    );
    done(&format!("verify {m}"), &["s30"]);
    done("list s3://bucket/jobs/other", &["0 checkpoints"]);
    // One job's name begins like another's.
    done("list s3://bucket/jobs/dig", &["0 checkpoints"]);
    for line in [
        "list s3://elsewhere/job",
        "copy a s3://elsewhere/job",
        "copy s3://elsewhere/job b",
    ] {
        let said = says(&site, &moto, line, 1);
        assert!(said.contains("elsewhere") && !said.contains("a secret"), "{line}: {said}");
    }
}

#[test]
fn a_job_goes_on_from_s3_when_its_disk_is_lost() {
    let Some(moto) = Moto::start() else { return };
    let site = Site::new();
    let show = |command: &mut Command| {
        moto.show(command);
    };
    let hash = killed_and_brought_back(&site, "s3://bucket/lost", &show);
    let verified = says(&site, &moto, "verify s3://bucket/lost", 0);
    has(&verified, &[&format!("whole, state {hash}")]);
}
