//! Aligned columns for a terminal.

use std::io::{self, Write};

/// Side of a column on which its values stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows under headings.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with one value per column.
    pub(crate) fn row(&mut self, values: Vec<String>) {
        self.rows.push(values);
    }

    /// Prints the table: each column as wide as its widest value, two spaces between columns.
    ///
    /// # Errors
    /// Those of the writer.
    pub(crate) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, (heading, _))| {
                let values = self.rows.iter().map(|row| row[at].chars().count());
                values.chain([heading.len()]).max().unwrap_or(0)
            })
            .collect();
        let headings = self.columns.iter().map(|(heading, _)| *heading).collect::<Vec<_>>();
        self.line(out, &widths, &headings)?;
        for row in &self.rows {
            let values: Vec<&str> = row.iter().map(String::as_str).collect();
            self.line(out, &widths, &values)?;
        }
        Ok(())
    }

    fn line(&self, out: &mut impl Write, widths: &[usize], values: &[&str]) -> io::Result<()> {
        let mut line = String::new();
        for ((value, width), (_, align)) in values.iter().zip(widths).zip(&self.columns) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            line.push_str(&match align {
                Align::Left => format!("{value:<width$}"),
                Align::Right => format!("{value:>width$}"),
            });
        }
        writeln!(out, "{}", line.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&[("shard", Align::Right), ("public", Align::Left)]);
        table.row(vec!["7".into(), "203.0.113.0/28".into()]);
        table.row(vec!["1234567".into(), "x".into()]);
        let mut text = Vec::new();
        table.print(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "  shard  public\n      7  203.0.113.0/28\n1234567  x\n");
    }
}
