//! Progress bars on standard error: shown only on a terminal, and cleared whatever happens.

use std::sync::LazyLock;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// All that are shown: there is one terminal.
static SHOWN: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// A bar of `whole` steps, drawn as the template says; gone when it is dropped.
pub(crate) fn bar(whole: u64, what: &'static str, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    SHOWN.add(ProgressBar::new(whole).with_style(style).with_message(what))
}

/// Clears all bars for good: who still moves one draws nothing any more.
pub(crate) fn clear_bars() {
    if let Some(shown) = LazyLock::get(&SHOWN) {
        let _ = shown.clear();
        shown.set_draw_target(ProgressDrawTarget::hidden());
    }
}
