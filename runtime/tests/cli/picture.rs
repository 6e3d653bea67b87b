//! Files of pictures and packed files by hand, bytes as the formats' own texts describe them: nothing is compressed.

/// A grey picture of this size, as a PNG.
pub(crate) fn png(height: u32, width: u32, grey: u8) -> Vec<u8> {
    let row = [vec![0], vec![grey; width as usize]].concat();
    let mut size = [width.to_be_bytes(), height.to_be_bytes()].concat();
    // 8 bits of grey; the only compression and filter methods; not interlaced.
    size.extend([8, 0, 0, 0, 0]);
    let rows = row.repeat(height as usize);
    let pixels = [&[0x78, 0x01], &stored(&rows)[..], &adler32(&rows).to_be_bytes()].concat();
    let chunks = [chunk(b"IHDR", &size), chunk(b"IDAT", &pixels), chunk(b"IEND", &[])].concat();
    [b"\x89PNG\r\n\x1a\n", &chunks[..]].concat()
}

/// What gunzip makes `bytes` of.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len() as u32;
    let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let tail = [crc32(bytes).to_le_bytes(), length.to_le_bytes()].concat();
    [&head, &stored(bytes)[..], &tail].concat()
}

fn chunk(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let named = [name, content].concat();
    let length = (content.len() as u32).to_be_bytes();
    [&length, &named[..], &crc32(&named).to_be_bytes()].concat()
}

/// One block of deflate, the last, that is stored as it is.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap();
    [&[1], &length.to_le_bytes()[..], &(!length).to_le_bytes(), bytes].concat()
}

fn crc32(bytes: &[u8]) -> u32 {
    let bit = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    let byte = |crc: u32, &byte: &u8| (0..8).fold(crc ^ u32::from(byte), |crc, _| bit(crc));
    !bytes.iter().fold(u32::MAX, byte)
}

fn adler32(bytes: &[u8]) -> u32 {
    let (one, two) = bytes.iter().fold((1_u32, 0_u32), |(one, two), &byte| {
        let one = (one + u32::from(byte)) % 65_521;
        (one, (two + one) % 65_521)
    });
    two << 16 | one
}
