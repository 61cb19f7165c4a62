use super::*;

const ALLOCATED_LINE: &str = concat!(
    r#"{"time":"2026-03-01T12:00:00.120Z","event":"block-allocated","shard":1,"lane":3,"epoch":17,"#,
    r#""index":9,"subscriber":"10.200.0.1","gre_key":9,"public":"203.0.113.1","ports":"1024-1279","#,
    r#""node":"n\"1","boot":"0000000000000000000000000000abcd","sequence":7}"#,
    "\n"
);
const OLD_LINE: &str = concat!(
    r#"{"time":"2026-03-01T12:00:00.120Z","event":"block-released","shard":1,"#,
    r#""subscriber":"10.200.0.1","gre_key":9,"public":"203.0.113.1","ports":"1024-1279","#,
    r#""node":"n\"1","sequence":7}"#,
    "\n"
);
const CLAIMED_LINE: &str = concat!(
    r#"{"time":"2026-03-01T12:00:00.120Z","event":"prefix-claimed","shard":1,"lane":0,"epoch":17,"#,
    r#""index":9,"subscriber":"10.200.0.1","gre_key":9,"prefix":"2001:db8:1000:1::/64","#,
    r#""node":"n\"1","boot":"0000000000000000000000000000abcd","sequence":7}"#,
    "\n"
);
const TIME_MS: u64 = 1_772_366_400_120;

fn block() -> AssignedBlock {
    AssignedBlock {
        subscriber: Ipv4Addr::new(10, 200, 0, 1).into(),
        gre_key: Some(9),
        public: Ipv4Addr::new(203, 0, 113, 1),
        port_first: 1024,
        port_last: 1279,
    }
}

fn claim() -> PrefixClaim {
    PrefixClaim {
        subscriber: Ipv4Addr::new(10, 200, 0, 1).into(),
        gre_key: Some(9),
        prefix: Prefix64::from_bits(0x2001_0db8_1000_0001),
    }
}

fn line(content: Content) -> BlockLogLine {
    let boot = Some(0xabcd);
    BlockLogLine { time_ms: TIME_MS, node: "n\"1".to_owned(), boot, sequence: 7, content }
}

fn of_lane(kind: BlockRecordKind) -> BlockLogLine {
    line(Content::Lane(BlockRecord { shard: 1, lane: 3, epoch: 17, index: 9, kind }))
}

fn of_address_lane(kind: BlockRecordKind) -> BlockLogLine {
    line(Content::Lane(BlockRecord { shard: 1, lane: 0, epoch: 17, index: 9, kind }))
}

fn emitted(line: &BlockLogLine) -> String {
    let mut out = Vec::new();
    line.emit(&mut out);
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn a_line_reads_as_documented() {
    let allocated = of_lane(BlockRecordKind::Allocated(block()));
    assert_eq!(emitted(&allocated), ALLOCATED_LINE);
    assert_eq!(BlockLogLine::parse(ALLOCATED_LINE.as_bytes()), Ok(Some(allocated)));
    let claimed = of_address_lane(BlockRecordKind::PrefixClaimed(claim()));
    assert_eq!(emitted(&claimed), CLAIMED_LINE);
    assert_eq!(BlockLogLine::parse(CLAIMED_LINE.as_bytes()), Ok(Some(claimed)));
}

#[test]
fn a_line_of_the_older_version_is_still_read() {
    let content = Content::Old { shard: 1, block: block(), is_release: true };
    let old = BlockLogLine { boot: None, ..line(content) };
    assert_eq!(emitted(&old), OLD_LINE);
    assert_eq!(BlockLogLine::parse(OLD_LINE.as_bytes()), Ok(Some(old)));
    let text =
        r#"{"time":"1970-01-01T00:00:01.000Z","event":"log-opened","node":"n","sequence":1}"#;
    let opened = BlockLogLine::parse(text.as_bytes()).expect("a record").expect("known");
    assert_eq!(opened.content, Content::Opened { is_clustered: false, boot_before: None });
}

#[test]
fn each_event_is_read_as_it_is_written() {
    let since = Some(system_time(TIME_MS - 1));
    let lines = [
        (
            line(Content::Opened { is_clustered: true, boot_before: Some(0xef) }),
            r#""event":"log-opened","clustered":true,"boot_before":"000000000000000000000000000000ef","node""#,
        ),
        (line(Content::Closed), r#""event":"log-closed","node""#),
        (line(Content::Mark), r#""event":"log-mark","node""#),
        (line(Content::Lost(3)), r#""event":"records-lost","count":3,"node""#),
        (
            of_lane(BlockRecordKind::Taken { before: None }),
            r#""event":"lane-taken","shard":1,"lane":3,"epoch":17,"index":9,"node""#,
        ),
        (of_lane(BlockRecordKind::Taken { before: Some(4) }), r#""index":9,"before":4,"node""#),
        (
            of_lane(BlockRecordKind::Left),
            r#""event":"lane-left","shard":1,"lane":3,"epoch":17,"index":9,"node""#,
        ),
        (
            of_lane(BlockRecordKind::Listed { blocks: 2, from: 5, are_claims_by_lane: true }),
            r#""event":"lane-listed","shard":1,"lane":3,"epoch":17,"index":9,"blocks":2,"from":5,"claims_by_lane":true,"node""#,
        ),
        (
            of_lane(BlockRecordKind::Released(block())),
            r#""event":"block-released","shard":1,"lane":3"#,
        ),
        (
            of_lane(BlockRecordKind::Held { block: block(), since: None }),
            r#""ports":"1024-1279","node""#,
        ),
        (
            of_lane(BlockRecordKind::Held { block: block(), since }),
            r#""event":"block-held","shard":1,"lane":3,"epoch":17,"index":9,"subscriber":"10.200.0.1","gre_key":9,"public":"203.0.113.1","ports":"1024-1279","since":"2026-03-01T12:00:00.119Z","node""#,
        ),
        (
            of_address_lane(BlockRecordKind::PrefixReleased(claim())),
            r#""event":"prefix-released","shard":1,"lane":0,"epoch":17,"index":9,"subscriber""#,
        ),
        (
            of_address_lane(BlockRecordKind::PrefixHeld(PrefixClaim { gre_key: None, ..claim() })),
            r#""event":"prefix-held","shard":1,"lane":0,"epoch":17,"index":9,"subscriber":"10.200.0.1","prefix":"2001:db8:1000:1::/64","node""#,
        ),
    ];
    for (line, part) in lines {
        let text = emitted(&line);
        assert!(text.contains(part), "{text}");
        assert_eq!(BlockLogLine::parse(text.as_bytes()), Ok(Some(line)), "{text}");
    }
}

#[test]
fn unknown_fields_and_events_of_a_newer_version_are_skipped() {
    let more = ALLOCATED_LINE.replace("\"shard\"", "\"colour\":[\"blue\"],\"shard\"");
    assert_eq!(
        BlockLogLine::parse(more.as_bytes()),
        Ok(Some(of_lane(BlockRecordKind::Allocated(block()))))
    );
    let other = ALLOCATED_LINE.replace("block-allocated", "quota-reached");
    assert_eq!(BlockLogLine::parse(other.as_bytes()), Ok(None));
}

#[test]
fn a_line_cut_off_anywhere_is_not_a_record() {
    let text = ALLOCATED_LINE.trim_end();
    for end in 0..text.len() {
        assert_eq!(BlockLogLine::parse(&text.as_bytes()[..end]), Err(NotARecord), "{end}");
    }
    for wrong in [
        ("1024-1279", "1279-1024"),
        ("1024-1279", "1024"),
        ("2026", "1926"),
        (":7}", ":-7}"),
        ("\"lane\":3", "\"lane\":8"),
        ("\"lane\":3,", ""),
        ("\"index\":9", "\"index\":0"),
        ("00abcd", "00abc"),
        ("00abcd", "00abcg"),
    ] {
        let text = ALLOCATED_LINE.replace(wrong.0, wrong.1);
        assert_eq!(BlockLogLine::parse(text.as_bytes()), Err(NotARecord), "{text}");
    }
}

#[test]
fn a_malformed_line_of_a_prefix_is_not_a_record() {
    for (right, wrong) in [
        ("2001:db8:1000:1::/64", "2001:0db8:1000:1::/64"),
        ("2001:db8:1000:1::/64", "2001:DB8:1000:1::/64"),
        ("2001:db8:1000:1::/64", "2001:db8:1000:1::7/64"),
        ("2001:db8:1000:1::/64", "2001:db8:1000::/48"),
        ("2001:db8:1000:1::/64", "203.0.113.1"),
        ("\"prefix\"", "\"public\""),
        ("\"subscriber\"", "\"home\""),
        ("10.200.0.1", "2001:db8::1::"),
        ("10.200.0.1", "10.200.0.1/32"),
        ("\"lane\":0", "\"lane\":8"),
        ("\"lane\":0,", ""),
        ("\"index\":9", "\"index\":0"),
        (",\"boot\":\"0000000000000000000000000000abcd\"", ""),
    ] {
        let text = CLAIMED_LINE.replace(right, wrong);
        assert_ne!(text, CLAIMED_LINE, "{wrong}");
        assert_eq!(BlockLogLine::parse(text.as_bytes()), Err(NotARecord), "{text}");
    }
}

#[test]
fn any_bytes_are_parsed_without_panic_and_any_line_round_trips() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let _ = BlockLogLine::parse(bytes);
    });
    type Case = ((u64, u64), u32, Option<u32>, u16, u16, String, u128);
    bolero::check!().with_type::<Case>().for_each(|case| {
        let ((time_ms, bits), address, gre_key, port, more, node, boot) = case.clone();
        let block = AssignedBlock {
            public: address.into(),
            gre_key,
            port_first: port,
            port_last: port.saturating_add(more),
            ..block()
        };
        let mut line = of_lane(BlockRecordKind::Allocated(block));
        // Times end at 9999-12-30T22:00Z.
        line.time_ms = time_ms % 253_402_207_200_000;
        (line.node, line.boot) = (node, Some(boot));
        assert_eq!(BlockLogLine::parse(emitted(&line).as_bytes()), Ok(Some(line.clone())));
        let (subscriber, prefix) = (Ipv4Addr::from(address).into(), Prefix64::from_bits(bits));
        let claim = PrefixClaim { subscriber, gre_key, prefix };
        let claimed = of_address_lane(BlockRecordKind::PrefixClaimed(claim));
        let claimed = BlockLogLine { content: claimed.content, ..line };
        assert_eq!(BlockLogLine::parse(emitted(&claimed).as_bytes()), Ok(Some(claimed)));
    });
}
