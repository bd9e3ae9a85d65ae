//! Messages to the stream that it has not acknowledged, and which of them to send without it meanwhile. Sends nothing itself.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;

use super::fault::Fault;

/// Without any acknowledgement for so long the stream has perhaps lost its leader, and elects the next one within seconds. A stream that is
/// only slow goes on acknowledging.
pub(super) const LATE: Duration = Duration::from_millis(500);

type Answer = Pin<Box<dyn Future<Output = (u64, Result<(), Fault>)> + Send>>;

/// Messages whose acknowledgement is awaited.
#[derive(Default)]
pub(super) struct Unanswered {
    answers: FuturesUnordered<Answer>,
    /// Those that were not sent without the stream, by number.
    waiting: BTreeMap<u64, Vec<u8>>,
    next: u64,
    /// The last acknowledgement, or when the first message of those that wait was sent.
    since: Option<Instant>,
}

impl Unanswered {
    pub(super) fn len(&self) -> usize {
        self.answers.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// A message was sent to the stream; `payload` where that is the only way that it went.
    pub(super) fn push(
        &mut self,
        payload: Option<Vec<u8>>,
        answer: impl Future<Output = Result<(), Fault>> + Send + 'static,
    ) {
        let number = self.next;
        self.next += 1;
        payload.and_then(|payload| self.waiting.insert(number, payload));
        self.since.get_or_insert_with(Instant::now);
        self.answers.push(Box::pin(async move { (number, answer.await) }));
    }

    /// The next answer; `None` where none is awaited. A message that was refused still waits to be sent without the stream.
    pub(super) async fn next(&mut self) -> Option<Result<(), Fault>> {
        let (number, answer) = self.answers.next().await?;
        if answer.is_ok() {
            self.waiting.remove(&number);
            self.since = (!self.is_empty()).then(Instant::now);
        }
        Some(answer)
    }

    /// All of them, when they are there.
    pub(super) async fn all(mut self) {
        while self.next().await.is_some() {}
    }

    /// Whether no acknowledgement came for long.
    pub(super) fn is_late(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= LATE)
    }

    /// When there will be something to send without the stream, if no acknowledgement comes.
    pub(super) fn late_at(&self) -> Option<Instant> {
        self.since.filter(|_| !self.waiting.is_empty()).map(|since| since + LATE)
    }

    /// What to send without the stream, once.
    pub(super) fn take_late(&mut self) -> impl Iterator<Item = Vec<u8>> + use<> {
        std::mem::take(&mut self.waiting).into_values()
    }

    /// Nothing is awaited any more.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_waits_without_any_acknowledgement_goes_without_the_stream_once() {
        let mut unanswered = Unanswered::default();
        assert_eq!((unanswered.late_at(), unanswered.is_late()), (None, false));
        unanswered.push(Some(vec![1]), pending());
        unanswered.push(Some(vec![2]), ready(Ok(())));
        unanswered.push(None, pending());
        tokio::time::advance(LATE / 2).await;
        assert_eq!(unanswered.next().await, Some(Ok(())));
        tokio::time::advance(LATE * 3 / 4).await;
        assert!(!unanswered.is_late(), "it is only slow");
        tokio::time::advance(LATE / 4).await;
        assert!(unanswered.is_late() && unanswered.late_at().is_some_and(|at| at <= Instant::now()));
        unanswered.push(Some(vec![3]), ready(Err(Fault::absence("refused"))));
        assert!(unanswered.next().await.is_some_and(|answer| answer.is_err()));
        assert_eq!(unanswered.take_late().collect::<Vec<_>>(), [[1], [3]]);
        assert_eq!((unanswered.late_at(), unanswered.take_late().count(), unanswered.len()), (None, 0, 2));
        unanswered.clear();
        assert!(unanswered.is_empty() && !unanswered.is_late());
    }
}
