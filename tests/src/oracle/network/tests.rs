use super::super::Oracle;

/// The answers to several questions, faults with their mark.
fn answers(questions: &str) -> Vec<String> {
    let mut oracle = Oracle::default();
    let answer = |question: &str| oracle.answer(question).unwrap_or_else(|fault| format!("% {fault}"));
    questions.lines().map(answer).collect()
}

fn last(questions: &str) -> String {
    answers(questions).pop().unwrap()
}

const RULE: &str = "rule spand paper 1000 1 1 1";
const NET: &str = "198.51.100.0/24";

/// A table in which connection 1 lost at a window of 21 segments after round trips of 100 ms.
fn known() -> String {
    format!("{RULE}\nopen 0 {NET} 1\nrtt 1 {NET} 1 100000\nloss 1.5 {NET} 1 21 avoidance")
}

#[test]
fn a_start_is_what_the_start_function_says() {
    assert_eq!(last(&format!("{RULE}\nopen 0 {NET} 1\nstart 0 {NET} 1 30000")), "none no_estimate");
    // Wc = 20: ten segments fit one round trip, paced over it at W/RTT beyond the bucket of four.
    assert_eq!(last(&format!("{}\nstart 2 {NET} 1 10000", known())), "10 10 100000 4");
    assert_eq!(last(&format!("{}\nstart 2 {NET} 1 unknown", known())), "20 20 200000 4");
    assert_eq!(last(&format!("{}\nstart 2 {NET} 1 3000", known())), "3 3 0 3");
}

#[test]
fn modes_and_rules_are_the_products_own() {
    let careful = known().replace("paper", "careful");
    assert_eq!(last(&format!("{careful}\nstart 2 {NET} 1 unknown")), "20 25 100000 10");
    let few = known().replace("1 1 1\n", "1 3 2\n");
    assert_eq!(last(&format!("{few}\nstart 2 {NET} 1 unknown")), "none no_estimate");
}

#[test]
fn a_loss_free_transfer_gives_its_window_and_another_none() {
    let questions = format!(
        "{RULE}\nopen 0 {NET} 1\nrtt 1 {NET} 1 100000\nend 1 {NET} 1 8 window 30000\nstart 1 {NET} 1 unknown
loss 2 {NET} 1 20 slow_start\nend 3 {NET} 1 2 window 30000\nstart 4 {NET} 1 unknown
loss 5 {NET} 1 20 timeout\nloss 5 {NET} 1 20 recovery\nend 5 {NET} 1 2 window 30000\nstart 5 {NET} 1 unknown
end 6 {NET} 1 40 application 30000\nstart 6 {NET} 1 unknown\nend 7 {NET} 1 16 window 30000\nstart 7 {NET} 1 unknown"
    );
    let starts: Vec<_> = answers(&questions).into_iter().filter(|answer| answer != "ok").collect();
    assert_eq!(starts, ["8 8 80000 4", "8 8 80000 4", "8 8 80000 4", "8 8 80000 4", "12 12 120000 4"]);
}

#[test]
fn what_started_on_advice_probes() {
    // An end at the share that advised it counts as one segment more, under `probe` only.
    let questions = |rule: &str| {
        format!("{}\nstart 2 {NET} 1 20000\nend 3 {NET} 1 20 window 20000\nstart 4 {NET} 1 unknown", known())
            .replace("spand", rule)
    };
    assert_eq!(last(&questions("spand")), "20 20 200000 4");
    // (20 + 21) / 2, rounded to nearest.
    assert_eq!(last(&questions("probe")), "21 21 210000 4");
}

#[test]
fn samples_age() {
    assert_eq!(last(&format!("{}\nstart 1000 {NET} 1 unknown", known())), "none no_estimate");
    let other = "203.0.113.0/24";
    assert_eq!(last(&format!("{}\nopen 2 {other} 2\nstart 2 {other} 2 unknown", known())), "none no_estimate");
}

#[test]
fn a_closed_connection_may_open_again() {
    assert_eq!(last(&format!("{}\nclose 2 {NET} 1\nopen 3 {NET} 1\nstate 4 {NET} 1 avoidance 3.5 7", known())), "ok");
}

#[test]
fn bad_questions_are_refused() {
    let alone = [
        ("open 0 198.51.100.0/24 1", "`open` comes before `rule`"),
        (
            "rule median paper 1000 1 1 1",
            "`median` is not an estimation rule: choose spand, probe, robust, liss, iss, miss, cached or averaged",
        ),
        ("rule spand brave 1000 1 1 1", "`brave` is not a mode: choose observe, careful or paper"),
        ("rule spand paper 0 1 1 1", "segment size is `0`, not a whole number in range"),
        ("rule spand paper 1000 0 1 1", "initial window is `0`, not a whole number in range"),
        ("rule spand paper 1000 1 -1 1", "smallest number of samples is `-1`, not a whole number in range"),
        ("rule spand paper 1000 1 1", "smallest number of connections is missing"),
        (
            "rule spand paper 1000 1 1 1 leap",
            "`leap` is not a shape of a start: choose paced, threshold, jump, measured, own_threshold, own_paced or rfc9959",
        ),
        ("rule spand paper 1000 1 1 1 jump all", "losses count as `episodes` or `each`, not `all`"),
        ("rule spand paper 1000 1 1 1 jump each 1", "`1` is one word too many"),
    ];
    for (question, reason) in alone {
        assert_eq!(last(question), format!("% {reason}"), "{question}");
    }
    assert!(last("rule median paper 1000 1 1 1").starts_with("% `median` is not an estimation rule: choose spand"));
    let after = [
        ("rule spand paper 1000 1 1 1", "there is a rule already"),
        ("shrink 2 NET 1", "there is no question `shrink`"),
        ("open 1 NET 1", "time goes back from 1.5 to 1 s"),
        ("open -1 NET 1", "time is `-1`, not seconds from 0 on"),
        ("open NaN NET 1", "time is `NaN`, not seconds from 0 on"),
        ("open inf NET 1", "time is `inf`, not seconds from 0 on"),
        ("open 2 NET 1", "connection 1 is open already"),
        ("open 2 NET x", "connection is `x`, not a whole number in range"),
        ("open 2 NET", "connection is missing"),
        (
            "open 2 198.51.100.1 2",
            "`198.51.100.1` is not a network: write an address with a prefix length, such as 192.0.2.0/24 or 2001:db8::/48",
        ),
        ("start 2 NET 2 100", "there is no connection 2 to 198.51.100.0/24"),
        ("start 2 203.0.113.0/24 1 100", "there is no connection 1 to 203.0.113.0/24"),
        ("start 2 NET 1 many", "size is `many`, not a whole number in range"),
        ("start 2 NET 1", "size is missing"),
        ("close 2 NET 3", "there is no connection 3 to 198.51.100.0/24"),
        ("state 2 NET 1 idle 3 1", "there is no phase `idle`"),
        ("state 2 NET 1 avoidance 0 1", "window is `0`, not a positive number"),
        ("state 2 NET 1 avoidance 3 -1", "acknowledgements is `-1`, not a whole number in range"),
        ("state 2 NET 1 avoidance 3 1 half", "ssthresh is `half`, not a whole number in range"),
        ("state 2 NET 4 avoidance 3 1", "there is no connection 4 to 198.51.100.0/24"),
        ("loss 2 NET 1 NaN avoidance", "window is `NaN`, not a positive number"),
        ("loss 2 NET 1 3 idle", "there is no phase `idle`"),
        ("loss 2 NET 5 3 avoidance", "there is no connection 5 to 198.51.100.0/24"),
        ("loss 2 NET 1 1e308 avoidance", "there is no window of inf bytes"),
        ("rtt 2 NET 1 0", "round trip is `0`, not a whole number in range"),
        ("rtt 2 NET 6 1", "there is no connection 6 to 198.51.100.0/24"),
        ("end 2 NET 1 3 boredom 1", "there is no limit `boredom`"),
        ("end 2 NET 1 3 window x", "bytes transferred is `x`, not a whole number in range"),
        ("end 2 NET 7 3 window 1", "there is no connection 7 to 198.51.100.0/24"),
        ("end 2 NET 1 3 window 1 1", "`1` is one word too many"),
    ];
    for (question, reason) in after {
        let question = question.replace("NET", NET);
        assert_eq!(last(&format!("{}\n{question}", known())), format!("% {reason}"), "{question}");
    }
}

#[test]
fn a_second_sender_opens_with_the_fair_share_of_one_more() {
    let known = known().replace("1 1 1\n", "1 1 1 threshold\n").replace("spand", "liss");
    let questions = format!(
        "{known}\nopen 2 {NET} 2\nstart 2 {NET} 2 unknown\nstate 2 {NET} 1 avoidance 20 40 10\nstart 2 {NET} 2 unknown"
    );
    let starts: Vec<_> = answers(&questions).into_iter().filter(|answer| answer != "ok").collect();
    // One in avoidance with 20 segments: half of it for one more.
    assert_eq!(starts, ["none no_opening", "1 10 0 1"]);
}

/// Yu and Newman's losses are halvings of a window: a loss in a recovery is part of that one.
#[test]
fn what_is_lost_in_recovery_counts_for_nothing_whether_losses_count_each_or_by_round_trips() {
    let start = |counted: &str, further: &str| {
        last(&format!(
            "rule miss paper 1000 1 1 1 measured {counted}\nopen 0 {NET} 1\nrtt 0 {NET} 1 100000
state 0 {NET} 1 avoidance 20 1 10\nloss 1 {NET} 1 20 avoidance\nloss 5 {NET} 1 20 avoidance
loss 5.05 {NET} 1 20 {further}\nloss 5.3 {NET} 1 20 {further}\nstate 5.5 {NET} 1 avoidance 20 1 10
open 6 {NET} 2\nstart 6 {NET} 2 unknown"
        ))
    };
    let one = start("each", "recovery");
    // Three of four seconds are left, of one sender: 30 round trips, at a segment each.
    assert!(one.starts_with("30 30 "), "{one}");
    assert_eq!(start("episodes", "recovery"), one);
    assert_ne!(start("each", "avoidance"), one);
    // The later of the two is more than a round trip behind the loss.
    assert_ne!(start("episodes", "avoidance"), one);
}
