//! No text makes the parser panic, and every finding is at a position inside the text.

use crate::base::{BASE, plain};
use crate::delegations::STATIC;
use crate::ipv6::{gre6, plain6};

fn parse(text: &str) {
    match weir_config::parse(text, "t.toml") {
        Ok((config, warnings)) => {
            assert!(config.nat.sessions_max.is_none_or(|max| max <= config.nat.flows_max));
            assert!(config.shards.iter().all(|shard| shard.worker < config.workers.len()));
            assert!(config.workers.iter().all(|worker| !worker.access.gateways.is_empty()));
            assert!(config.shards.iter().all(|shard| !shard.public.is_empty()));
            places_are_inside(text, &warnings);
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            places_are_inside(text, &errors);
        }
    }
}

fn places_are_inside(text: &str, found: &[weir_config::Diagnostic]) {
    let lines: Vec<&str> = text.split('\n').collect();
    for finding in found {
        let line = lines.get(finding.line - 1).expect("the line is in the file");
        assert!((1..=line.chars().count() + 1).contains(&finding.column), "{finding}");
    }
}

#[test]
fn arbitrary_text() {
    bolero::check!()
        .with_type::<Vec<u8>>()
        .for_each(|bytes| parse(&String::from_utf8_lossy(bytes)));
}

/// A valid file with pieces cut out, doubled and replaced gets much further than random bytes.
#[test]
fn mutated_text() {
    const PIECES: &[&str] = &[
        "0",
        "-1",
        "4_294_967_296",
        "99999999999999999999",
        "0x10",
        "\"\"",
        "[]",
        "{}",
        "[[shard]]\n",
        "[[worker]]\n",
        "\"0.0.0.0/0\"",
        "\"255.255.255.255/32\"",
        "\"10.1.0.1/24\"",
        "true",
        "1e9",
        "\n",
        "\"",
        "é",
        "=",
        "[",
        "]",
        ".",
        ",",
        "id = 1\n",
        "mtu = 576\n",
        "port_block = 8\n",
        "mode = \"plain\"\n",
        "1979-05-27",
        "\"2001:db8::/64\"",
        "\"::/0\"",
        "home_length6 = 48\n",
        "[[delegation]]\n",
    ];
    let static6 = format!("{STATIC}{}", gre6());
    let texts = [BASE.to_owned(), plain(), static6, plain6()];
    bolero::check!().with_type::<(u8, Vec<(u16, u8, u8)>)>().for_each(|(base, edits)| {
        let mut text = texts[usize::from(*base) % texts.len()].clone();
        for (at, cut, piece) in edits.iter().take(8) {
            let boundary = |at: usize| {
                (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
            };
            let start = boundary(usize::from(*at) % (text.len() + 1));
            let end = boundary(start + usize::from(*cut) % 24).max(start);
            let piece = PIECES[usize::from(*piece) % PIECES.len()];
            text.replace_range(start..end, piece);
        }
        parse(&text);
    });
}

#[test]
fn long_junk_gives_a_short_report() {
    let junk: String = (0..10_000).map(|number| format!("k{number} = 1\n")).collect();
    let errors = weir_config::parse(&junk, "t.toml").expect_err("junk");
    assert!(errors.len() <= 200);
    for junk in ["[".repeat(100_000), "a.".repeat(100_000) + "a = 1", "=\n".repeat(100_000)] {
        assert!(weir_config::parse(&junk, "t.toml").expect_err("junk").len() <= 200);
    }
}
