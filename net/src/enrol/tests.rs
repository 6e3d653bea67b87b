//! The bytes of what is said to enrol, written down by hand.

use sardana_protocol::codec::{decode, encode};
use sardana_protocol::words::JobId;

use super::invitation::Invitation;
use super::limits::ENROL_FRAME_BYTES;
use super::messages::{EnrolAnswer, EnrolRequest};
use crate::trust::Moment;
use crate::trust::Role;

#[test]
fn golden_bytes() {
    let invited = EnrolRequest::Invited {
        invitation: Invitation {
            version: 1,
            job: JobId::new([0xaa; 16]),
            role: Role::Operator,
            expires: Moment::new(9),
            uses: 3,
            nonce: [0xbb; 16],
            secret: [0xcc; 32],
        },
        request: vec![0xdd, 0xee],
    };
    let bytes = [
        vec![0, 1],
        vec![0xaa; 16],
        vec![3, 9, 3],
        vec![0xbb; 16],
        vec![0xcc; 32],
        vec![2, 0xdd, 0xee],
    ]
    .concat();
    let run_out = EnrolRequest::RunOut {
        certificate: vec![7],
        request: vec![8, 9],
    };
    for (request, bytes) in [(invited, bytes), (run_out, vec![1, 1, 7, 2, 8, 9])] {
        assert_eq!(encode(&request, ENROL_FRAME_BYTES).unwrap(), bytes);
        assert_eq!(decode::<EnrolRequest>(&bytes, ENROL_FRAME_BYTES).unwrap(), request);
    }
    for (answer, bytes) in [
        (EnrolAnswer::Enrolled { certificate: vec![7] }, vec![0, 1, 7]),
        (EnrolAnswer::Refused { reason: "no".to_owned() }, vec![1, 2, b'n', b'o']),
    ] {
        assert_eq!(encode(&answer, ENROL_FRAME_BYTES).unwrap(), bytes);
        assert_eq!(decode::<EnrolAnswer>(&bytes, ENROL_FRAME_BYTES).unwrap(), answer);
    }
}
