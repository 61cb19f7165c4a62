//! From the configuration to what the workers of a node ask about flows that begin.

use std::io;
use std::sync::Arc;

use weir_config::{
    Config, DelegationSettings, Ipv6Settings, PolicySettings, PublicSettings, StaticProtocol,
    StaticSettings, load_sets,
};
use weir_nat::{
    DelegatedPrefix, Delegations, Endpoint, OutOfService, PrefixOutOfService, Protocol,
    StaticConflict, StaticMapping, StaticMappings, StaticScope,
};
use weir_policy::RuleVerdict;
use weir_rules::{FlowOrigin, RuleSet, SOURCE_POOLS, SourcePool};

/// What all workers of a node share, compiled once.
#[derive(Clone, Debug)]
pub struct FlowSettings {
    pub rules: Arc<RuleSet>,
    pub statics: Arc<StaticMappings>,
    pub delegations: Arc<Delegations>,
    /// By number.
    pub named: Arc<[NamedRule]>,
    /// Names of the source pools, from number 1 on.
    pub source_pools: Arc<[String]>,
}

/// A rule, as operators know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRule {
    pub name: String,
    /// What happens to flows on which it decides.
    pub verdict: RuleVerdict,
    /// Whether the log names the flows on which it decides.
    pub is_logged: bool,
}

impl NamedRule {
    /// Returns the action as the file has it.
    pub fn action_word(&self) -> &'static str {
        self.verdict.name()
    }
}

impl FlowSettings {
    /// Compiles the rules, the static mappings and the delegated prefixes of a configuration that
    /// names no file any more ([`Config::with_files`]).
    ///
    /// # Errors
    /// When they cannot be compiled, or name a file.
    pub fn new(
        policy: &PolicySettings,
        public: &PublicSettings,
        ipv6: &Ipv6Settings,
    ) -> Result<Self, String> {
        let read = |_: &std::path::Path| Err(io::Error::from(io::ErrorKind::NotFound));
        let sets = load_sets(policy, read).map_err(|errors| {
            errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        })?;
        let policy = weir_policy::compile(policy, &sets).map_err(|it| it.to_string())?;
        let statics: Vec<StaticMapping> = public.statics.iter().map(mapping).collect();
        let statics = StaticMappings::new(&statics).map_err(|conflict| {
            let StaticConflict { first, second, .. } = conflict;
            let [first, second] = [first, second].map(|at| public.statics[at].to_string());
            format!("{second}: it excludes {first}")
        })?;
        let named = (0..policy.rules.rules() as u32).map(|rule| NamedRule {
            name: policy.name(rule).to_owned(),
            verdict: RuleVerdict::of(FlowOrigin::Home, policy.rules.deciding(rule)),
            is_logged: policy.rules.is_logged(rule),
        });
        let named = named.collect();
        let pools = (1..SOURCE_POOLS).map_while(SourcePool::new);
        let names = pools.map_while(|pool| policy.source_pool_name(pool).map(str::to_owned));
        let source_pools = names.collect();
        let delegated: Vec<DelegatedPrefix> = ipv6.delegations.iter().map(delegated).collect();
        let delegations = Delegations::new(&delegated).map_err(|conflict| conflict.to_string())?;
        Ok(Self {
            rules: policy.rules,
            statics: Arc::new(statics),
            delegations: Arc::new(delegations),
            named,
            source_pools,
        })
    }

    /// Returns no rules and no static mappings.
    pub fn none() -> Self {
        let (rules, statics) = (RuleSet::empty(), StaticMappings::none());
        Self {
            rules: Arc::new(rules),
            statics: Arc::new(statics),
            delegations: Arc::default(),
            named: Arc::new([]),
            source_pools: Arc::new([]),
        }
    }
}

fn delegated(settings: &DelegationSettings) -> DelegatedPrefix {
    let home = settings.home;
    let (outer, gre_key) = (home.address.into(), home.gre_key);
    DelegatedPrefix { prefix: settings.prefix, outer, gre_key }
}

fn mapping(settings: &StaticSettings) -> StaticMapping {
    let &StaticSettings { subscriber, gre_key, protocol, inside, inside_port, public, public_port } =
        settings;
    StaticMapping {
        outer: subscriber.into(),
        gre_key,
        inside: Endpoint::new(inside.into(), inside_port),
        public: Endpoint::new(public.into(), public_port),
        scope: match protocol {
            StaticProtocol::All => StaticScope::Address,
            StaticProtocol::Tcp => StaticScope::Port(Protocol::Tcp),
            StaticProtocol::Udp => StaticScope::Port(Protocol::Udp),
        },
    }
}

/// Returns the public addresses that are out of service.
pub(crate) fn out_of_service(config: &Config) -> Box<[PrefixOutOfService]> {
    let with = |nets: &[ipnet::Ipv4Net], how| -> Vec<PrefixOutOfService> {
        nets.iter().map(|&prefix| PrefixOutOfService { prefix, how }).collect()
    };
    let mut all = with(&config.public.drain, OutOfService::Drained);
    all.extend(with(&config.public.quarantine, OutOfService::Quarantined));
    all.into()
}
