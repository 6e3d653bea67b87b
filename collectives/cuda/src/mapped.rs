//! The files that this process has mapped into its memory, by what the system says of it. Must not know what the files are for.

use std::fs;
use std::path::PathBuf;

/// What the system says, a line for each mapping. Empty where it does not tell.
pub(crate) fn mappings() -> String {
    fs::read_to_string("/proc/self/maps").unwrap_or_default()
}

/// The files, in the order of their addresses; one that is mapped in several parts comes as often.
pub(crate) fn files(mappings: &str) -> impl Iterator<Item = &str> {
    mappings.lines().filter_map(file)
}

/// The file that is mapped at this address.
pub(crate) fn file_at(mappings: &str, address: usize) -> Option<PathBuf> {
    let is_there = |line: &&str| {
        let number = |text| usize::from_str_radix(text, 16).ok();
        let bounds = line.split_whitespace().next().and_then(|range| range.split_once('-'));
        let bounds = bounds.and_then(|(start, end)| Some(number(start)?..number(end)?));
        bounds.is_some_and(|bounds| bounds.contains(&address))
    };
    Some(PathBuf::from(file(mappings.lines().find(is_there)?)?))
}

/// The path that a line ends with. It may have spaces, and nothing before it has a slash.
fn file(line: &str) -> Option<&str> {
    Some(&line[line.find('/')?..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPPINGS: &str = "1000-2000 r-xp 0 00:1 9  /opt/a folder/liba.so\n2000-3000 rw-p 0 00:0 0 \n3000-4000 r-xp 0 00:1 9  /b.so\n9000-a000 rw-p 0 00:0 0  [stack]\nx\n";

    #[test]
    fn files_are_found_by_an_address_within_them() {
        assert_eq!(files(MAPPINGS).collect::<Vec<_>>(), ["/opt/a folder/liba.so", "/b.so"]);
        let at = |address| file_at(MAPPINGS, address).map(|path| path.display().to_string());
        assert_eq!(at(0x1fff).as_deref(), Some("/opt/a folder/liba.so"));
        assert_eq!(at(0x3000).as_deref(), Some("/b.so"));
        assert_eq!([0, 0x2000, 0x4000, 0x9000].map(at), [None, None, None, None]);
    }

    #[test]
    fn this_program_is_where_its_functions_are() {
        let own = file_at(&mappings(), mappings as *const () as usize).unwrap();
        assert_eq!(own, std::env::current_exe().unwrap().canonicalize().unwrap());
    }
}
