//! Whether an ELF file's table for finding unwind tables (`.eh_frame_hdr`) can be believed.
//!
//! The file is the watched program's, and the library that reads the table computes with its numbers
//! as they stand. A table that fails here is not used: the library then makes one from `.eh_frame`.

/// Version 1; a pointer relative to itself (4 bytes), a count (4 bytes), and rows of two offsets
/// from the section's begin (4 bytes each). All linkers for Linux write it so.
const LAYOUT: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const HEAD: usize = 12;
const ROW: usize = 8;

/// Whether the rows are all there, and none points before `.eh_frame`.
///
/// `address` is the section's, in the file's own numbering. Source: the Linux Standard Base, Core
/// Specification, `.eh_frame_hdr`.
pub fn is_sound(table: &[u8], address: u64) -> bool {
    let Some((head, rows)) = table.split_at_checked(HEAD) else {
        return false;
    };
    let offset = |bytes: &[u8]| i64::from(i32::from_le_bytes(four(bytes)));
    let count = u32::from_le_bytes(four(&head[8..])) as usize;
    let eh_frame = address
        .wrapping_add(4)
        .wrapping_add_signed(offset(&head[4..]));
    let lies_behind = |row: &[u8]| address.wrapping_add_signed(offset(&row[4..])) >= eh_frame;
    head.starts_with(&LAYOUT)
        && rows.len() / ROW >= count
        && rows.chunks_exact(ROW).take(count).all(lies_behind)
}

/// The first four of at least as many bytes.
fn four(bytes: &[u8]) -> [u8; 4] {
    [bytes[0], bytes[1], bytes[2], bytes[3]]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table at 0x1000 with one row, for an `.eh_frame` at 0x2000.
    fn table(count: u32, entry: i32) -> Vec<u8> {
        let numbers = [0x0ffc, count, 0x100, entry.cast_unsigned()];
        let bytes = numbers.iter().flat_map(|n: &u32| n.to_le_bytes());
        LAYOUT.into_iter().chain(bytes).collect()
    }

    #[test]
    fn a_table_whose_rows_are_there_and_point_into_the_section_is_sound() {
        assert!(is_sound(&table(1, 0x1000), 0x1000));
        assert!(is_sound(&table(0, -1), 0x1000));
    }

    #[test]
    fn a_count_beyond_the_table_is_not() {
        assert!(!is_sound(&table(2, 0x1000), 0x1000));
        assert!(!is_sound(&table(u32::MAX, 0x1000), 0x1000));
    }

    #[test]
    fn a_row_before_the_section_is_not() {
        assert!(!is_sound(&table(1, 0x0fff), 0x1000));
    }

    #[test]
    fn other_layouts_and_short_tables_are_not() {
        let mut wide = table(1, 0x1000);
        wide[3] = 0x3c;
        assert!(!is_sound(&wide, 0x1000));
        assert!(!is_sound(&table(1, 0x1000)[..HEAD - 1], 0x1000));
        assert!(!is_sound(&[], 0x1000));
    }
}
