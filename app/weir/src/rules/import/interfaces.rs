//! Which side the interfaces of nftables belong to.

use super::flow_set::{HOME, INTERNET};

/// The interfaces of both sides. A name that ends with `*` stands for all that begin so, as in
/// nftables.
#[derive(Clone, Debug)]
pub(super) struct SideInterfaces {
    pub home: Vec<String>,
    pub internet: Vec<String>,
}

/// How many of the interfaces that one name stands for another name fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameShare {
    None,
    Some,
    All,
}

impl SideInterfaces {
    /// Returns the sides that have an interface with one of the names or, if negated, with none of
    /// them.
    ///
    /// # Errors
    /// When a name is that of no side, or the interfaces of one side differ.
    pub(super) fn sides(&self, names: &[&str], is_negated: bool) -> Result<u8, String> {
        let all = || self.home.iter().chain(&self.internet);
        for name in names {
            if all().all(|interface| share(name, interface) == NameShare::None) {
                return Err(format!(
                    "interface {name} is named by neither --home-interface nor --internet-interface"
                ));
            }
        }
        let mut sides = 0;
        for (side, interfaces, word) in
            [(HOME, &self.home, "home"), (INTERNET, &self.internet, "internet")]
        {
            let share_of = |interface: &String| {
                let shares = names.iter().map(|name| share(name, interface));
                shares.fold(NameShare::None, |a, b| if a == NameShare::None { b } else { a.or(b) })
            };
            let first = interfaces.first().map_or(NameShare::None, share_of);
            if first == NameShare::Some || interfaces.iter().any(|it| share_of(it) != first) {
                let names = names.join(", ");
                return Err(format!("{names}: only some of the interfaces of the side {word}"));
            }
            if (first == NameShare::All) != is_negated {
                sides |= side;
            }
        }
        Ok(sides)
    }
}

impl NameShare {
    fn or(self, other: Self) -> Self {
        if self == Self::All || other == Self::All { Self::All } else { Self::Some }
    }
}

fn share(name: &str, interface: &str) -> NameShare {
    match (name.strip_suffix('*'), interface.strip_suffix('*')) {
        _ if name == interface => NameShare::All,
        (Some(stem), _) if interface.starts_with(stem) => NameShare::All,
        (_, Some(stem)) if name.starts_with(stem) => NameShare::Some,
        _ => NameShare::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select_whole_sides_or_are_refused() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let sides = SideInterfaces { home: list(&["lan1", "ppp*"]), internet: list(&["wan0"]) };
        assert_eq!(sides.sides(&["wan0"], false), Ok(INTERNET));
        assert_eq!(sides.sides(&["wan0"], true), Ok(HOME));
        assert_eq!(sides.sides(&["lan*", "ppp*"], false), Ok(HOME));
        assert_eq!(sides.sides(&["*"], false), Ok(HOME | INTERNET));
        assert_eq!(sides.sides(&["*"], true), Ok(0));
        for part in [&["lan1"][..], &["lan1", "ppp7"], &["ppp*"]] {
            assert!(sides.sides(part, false).unwrap_err().contains("only some"), "{part:?}");
        }
        let unknown = sides.sides(&["wan0", "dmz0"], true).unwrap_err();
        assert!(unknown.starts_with("interface dmz0 is named by neither"), "{unknown}");
        let one = SideInterfaces { home: vec![], internet: list(&["wan0"]) };
        assert_eq!(one.sides(&["wan0"], true), Ok(HOME));
    }
}
