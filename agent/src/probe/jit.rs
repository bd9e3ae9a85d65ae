//! Whether the kernel compiles BPF programs. The setting shows in the first network namespace only; elsewhere a program that is
//! loaded says it, where this process may look at programs.

use std::path::Path;

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};

use super::read;
use crate::capabilities::Capabilities;

const SETTING: &str = "/proc/sys/net/core/bpf_jit_enable";
/// Another setting that shows in the first network namespace only, in every kernel.
const OF_THE_FIRST_NAMESPACE: &str = "/proc/sys/net/core/netdev_budget";

/// Whether the kernel compiles BPF programs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Jit {
    Enabled,
    /// Programs are interpreted.
    Disabled,
    /// The kernel has no compiler for them.
    Missing,
    /// The setting does not show here, and no program does.
    NotVisible,
}

impl Jit {
    /// In words.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Enabled => "yes",
            Self::Disabled => "no (net.core.bpf_jit_enable is 0)",
            Self::Missing => "no (the kernel was built without CONFIG_BPF_JIT)",
            Self::NotVisible => "unknown (not visible in this network namespace)",
        }
    }
}

/// Looks.
pub(crate) fn jit() -> Jit {
    judge(read(SETTING).as_deref(), Path::new(OF_THE_FIRST_NAMESPACE).exists(), any_is_compiled)
}

fn judge(setting: Option<&str>, in_the_first_namespace: bool, any_is_compiled: impl FnOnce() -> Option<bool>) -> Jit {
    match setting {
        Some("0") => Jit::Disabled,
        Some(_) => Jit::Enabled,
        None if in_the_first_namespace => Jit::Missing,
        // One that is not may have been loaded before the setting was changed.
        None if any_is_compiled() == Some(true) => Jit::Enabled,
        None => Jit::NotVisible,
    }
}

/// Whether a program that is loaded on this machine was compiled; `None` where this process may not look.
fn any_is_compiled() -> Option<bool> {
    if !Capabilities::own().is_some_and(Capabilities::may_list_programs) {
        return None;
    }
    let with_code = ProgInfoQueryOptions::default().include_jited_prog_insns(true);
    Some(ProgInfoIter::with_query_opts(with_code).any(|program| !program.jited_prog_insns.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_does_not_show_is_not_taken_for_a_kernel_without_a_compiler() {
        let never = || -> Option<bool> { panic!("the setting is enough") };
        assert_eq!(judge(Some("1"), true, never), Jit::Enabled);
        assert_eq!(judge(Some("0"), true, never), Jit::Disabled);
        assert_eq!(judge(None, true, never), Jit::Missing);
        assert_eq!(judge(None, false, || Some(true)), Jit::Enabled);
        assert_eq!(judge(None, false, || Some(false)), Jit::NotVisible);
        assert_eq!(judge(None, false, || None), Jit::NotVisible);
    }
}
