//! What the pages of a column hold, by the kind of its values.

use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::file::statistics::Statistics;

use super::chunk::Chunk;
use super::dictionary::Dictionary;
use super::{delta as delta_packed, hybrid};
use crate::columns::Strikes;

/// Values of which each is near the one before, or which spread over a range: an encoding that
/// leaves nothing for a compressor to find.
pub(super) fn delta(values: &[i64]) -> Chunk {
    // 17 bits are what times some 20 µs apart take.
    let mut data = Vec::with_capacity(values.len() * 5 / 2);
    delta_packed::put(&mut data, values);
    Chunk {
        dictionary: None,
        data,
        encoding: Encoding::DELTA_BINARY_PACKED,
        rows: values.len(),
        statistics: None,
    }
}

/// The same, with the least and the greatest value in the footer: by those of `start_ns` and
/// `wall_ns` an engine passes over row groups. Those of other columns tell it nothing of use.
pub(super) fn delta_with_range(values: &[i64]) -> Chunk {
    let (least, most) = (values.iter().min().copied(), values.iter().max().copied());
    Chunk {
        statistics: Some(Statistics::int64(least, most, None, Some(0), false)),
        ..delta(values)
    }
}

/// Values that a dictionary of 8-byte values has numbered.
pub(super) fn numbered(dictionary: &Dictionary, numbers: &[u32]) -> Chunk {
    let values = dictionary.values();
    let plain = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    with_numbers((plain, values.len()), numbers)
}

/// Texts whose keys a dictionary has numbered.
pub(super) fn numbered_texts<'a>(
    dictionary: &Dictionary,
    numbers: &[u32],
    text: impl Fn(u64) -> &'a Arc<str>,
) -> Chunk {
    let keys = dictionary.values();
    let mut plain = Vec::new();
    keys.iter().for_each(|&key| put_text(&mut plain, text(key)));
    with_numbers((plain, keys.len()), numbers)
}

fn with_numbers(dictionary: (Vec<u8>, usize), numbers: &[u32]) -> Chunk {
    let largest = dictionary.1.saturating_sub(1) as u32;
    let width = hybrid::width(largest);
    let mut data = Vec::with_capacity(1 + numbers.len() * usize::from(width) / 8 + 16);
    data.push(width);
    hybrid::put(&mut data, width, numbers);
    dictionary_chunk(dictionary, data, numbers.len())
}

fn dictionary_chunk(dictionary: (Vec<u8>, usize), data: Vec<u8>, rows: usize) -> Chunk {
    let encoding = Encoding::RLE_DICTIONARY;
    Chunk {
        dictionary: Some(dictionary),
        data,
        encoding,
        rows,
        statistics: None,
    }
}

/// Doubles of too many values for a dictionary.
pub(super) fn plain(values: &[f64]) -> Chunk {
    let data = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    Chunk {
        dictionary: None,
        data,
        encoding: Encoding::PLAIN,
        rows: values.len(),
        statistics: None,
    }
}

/// Texts of too many values for a dictionary.
pub(super) fn plain_texts<'a>(texts: impl Iterator<Item = &'a Arc<str>>, rows: usize) -> Chunk {
    let mut data = Vec::new();
    texts.for_each(|text| put_text(&mut data, text));
    Chunk {
        dictionary: None,
        data,
        encoding: Encoding::PLAIN,
        rows,
        statistics: None,
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    // Names are interned from texts that are shorter than 4 GiB.
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// A column that can be null: `values` are those of the rows `present`.
pub(super) fn optional(
    present: &[u32],
    values: &[i64],
    rows: usize,
    levels: &mut Vec<u32>,
) -> Chunk {
    let mut data = levels_of(present, rows, levels);
    let encoding = if values.is_empty() {
        Encoding::PLAIN
    } else {
        delta_packed::put(&mut data, values);
        Encoding::DELTA_BINARY_PACKED
    };
    let nulls = (rows - present.len()) as u64;
    let statistics = Some(Statistics::int64(None, None, None, Some(nulls), false));
    Chunk {
        dictionary: None,
        data,
        encoding,
        rows,
        statistics,
    }
}

/// The same for texts: `texts` are those of the rows `present`, as a column of their own.
pub(super) fn optional_texts(
    present: &[u32],
    texts: Chunk,
    rows: usize,
    levels: &mut Vec<u32>,
) -> Chunk {
    let mut data = levels_of(present, rows, levels);
    if present.is_empty() {
        return Chunk {
            dictionary: None,
            data,
            encoding: Encoding::PLAIN,
            rows,
            statistics: None,
        };
    }
    data.extend_from_slice(&texts.data);
    Chunk {
        data,
        rows,
        ..texts
    }
}

/// Definition levels, which say which rows are `present`, with their length before them.
fn levels_of(present: &[u32], rows: usize, levels: &mut Vec<u32>) -> Vec<u8> {
    const WIDTH: u8 = 1;
    let mut data = vec![0; 4];
    if present.is_empty() || present.len() == rows {
        hybrid::put_run(&mut data, WIDTH, u32::from(!present.is_empty()), rows);
    } else {
        levels.clear();
        levels.resize(rows, 0);
        present.iter().for_each(|&row| levels[row as usize] = 1);
        hybrid::put(&mut data, WIDTH, levels);
    }
    let levels_bytes = (data.len() - 4) as u32;
    data[..4].copy_from_slice(&levels_bytes.to_le_bytes());
    data
}

/// The ns of a cause that struck few rows: a dictionary of 0 and every strike, and runs of 0
/// between the strikes. Costs nothing for the rows that were not struck.
pub(super) fn strikes_ns(strikes: &Strikes, rows: usize) -> Chunk {
    let mut plain = Vec::with_capacity((1 + strikes.ns.len()) * 8);
    plain.extend_from_slice(&0u64.to_le_bytes());
    strikes
        .ns
        .iter()
        .for_each(|ns| plain.extend_from_slice(&ns.to_le_bytes()));
    let largest = strikes.ns.len() as u32;
    let data = runs(&strikes.rows, 1..=largest, largest, rows);
    dictionary_chunk((plain, strikes.ns.len() + 1), data, rows)
}

/// The counts of such a cause: mostly 1, so that the dictionary is small. `None` if it is not.
pub(super) fn strikes_n(
    strikes: &Strikes,
    rows: usize,
    dictionary: &mut Dictionary,
) -> Option<Chunk> {
    dictionary.clear();
    dictionary.number(0)?;
    // Twice over the few strikes rather than a vector for their numbers.
    for &n in &strikes.n {
        dictionary.number(u64::from(n))?;
    }
    let largest = dictionary.values().len() as u32 - 1;
    let numbers = strikes
        .n
        .iter()
        .filter_map(|&n| dictionary.number(u64::from(n)));
    let data = runs(&strikes.rows, numbers, largest, rows);
    let values = dictionary.values();
    let plain = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    Some(dictionary_chunk((plain, values.len()), data, rows))
}

/// A data page of the number 0 in every row but the `struck` ones.
fn runs(struck: &[u32], numbers: impl Iterator<Item = u32>, largest: u32, rows: usize) -> Vec<u8> {
    let width = hybrid::width(largest);
    let mut data = Vec::with_capacity(8 + struck.len() * 7);
    data.push(width);
    let mut next = 0;
    for (&row, number) in struck.iter().zip(numbers) {
        let row = row as usize;
        hybrid::put_run(&mut data, width, 0, row - next);
        hybrid::put_run(&mut data, width, number, 1);
        next = row + 1;
    }
    hybrid::put_run(&mut data, width, 0, rows - next);
    data
}
