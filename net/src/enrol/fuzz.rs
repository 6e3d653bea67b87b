//! The file that says how often invitations were used, as any bytes.

use super::uses::parse;

/// Lines as they are, and lines that end in the right hash.
pub fn fuzz(bytes: &[u8]) {
    drop(parse(bytes));
    let sealed: Vec<u8> = bytes
        .split(|&byte| byte == b'\n')
        .flat_map(|line| [line, b" ", blake3::hash(line).to_hex().as_bytes(), b"\n"].concat())
        .collect();
    drop(parse(&sealed));
}
