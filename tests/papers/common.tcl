# What every script of this folder does alike: options, the conversation with the oracle, growth of the window by the
# project's own code, drops, and the end of a run. For Debian's ns-2 (package ns2), unchanged.
#
# A script's standard output is read by a program: a word that names the line, then its values. Its last line is `end` with
# the processor time used. Whatever goes wrong ends the run with exit status 3 and the reason on standard error.

proc fail {reason} {
    puts stderr $reason
    exit 3
}

# Reads name=value words over the defaults into the array `option`. Other names are refused.
proc options {defaults} {
    global argv option
    array set option $defaults
    foreach word $argv {
        if {![regexp {^([a-z-]+)=(.*)$} $word -> name value] || ![info exists option($name)]} {
            fail "there is no option `$word`; known: [lsort [array names option]]"
        }
        set option($name) $value
    }
}

# The senders of the papers (2000 to 2007) in today's ns-2: first window of one segment, the SYN's acknowledgement counts.
proc old_senders {segment_bytes window} {
    Agent/TCP set windowInit_ 1
    Agent/TCP set delay_growth_ false
    Agent/TCP set packetSize_ $segment_bytes
    Agent/TCP set window_ $window
}

# A channel that hands whatever ns-2 writes to it to a command, at once: how a script sees a variable change or a drop.
# ns-2 drops what the command returns, an error included, so an error ends the run here.
proc watcher {command} {
    set channel [chan create write [list watched $command]]
    fconfigure $channel -buffering none -translation binary
    return $channel
}

proc watched {command operation channel args} {
    switch $operation {
        initialize { return {initialize finalize watch write} }
        write {
            set text [lindex $args 0]
            if {[catch {{*}$command $text} reason]} { fail $reason }
            return [string length $text]
        }
    }
}

# Calls the command with the line of ns-2's trace for every packet that the queue from one node to the other drops.
proc on_drop {ns from to command} {
    set trace [$ns create-trace Drop [watcher $command] $from $to]
    [[$ns link $from $to] queue] drop-target $trace
    $trace target [$ns set nullAgent_]
}

namespace eval oracle {
    variable pipe ""
}

proc oracle::start {program} {
    variable pipe
    if {[catch {open [list | $program 2>@stderr] r+} pipe]} { fail "cannot start the oracle: $pipe" }
    fconfigure $pipe -buffering line
}

proc oracle::ask {question} {
    variable pipe
    if {$pipe eq ""} { fail "no oracle was started for `$question`" }
    puts $pipe $question
    if {[gets $pipe answer] < 0} { fail "the oracle ended at `$question`" }
    if {[string index $answer 0] eq "%"} { fail "`$question`: $answer" }
    return $answer
}

# Growth by the oracle: per sender its rule, its window in full precision (ns-2 shows six digits) and what it acknowledged.
namespace eval growth {
    variable id
    variable rule
    variable window
    variable acked
    variable senders 0
    variable busy 0
    # Where a rule ends, if that is below ns-2's own threshold.
    variable threshold 1e9
    # What a sender whose rule has ended does in slow start before its first loss: `avoidance` adds 1/W per ACK, `slow-start`
    # adds 1, `hover` follows the floor below zero, as the pseudo-code of B-TCP does, and `formula` that of byte counting
    # beyond its threshold.
    variable after avoidance
}

# Lets the oracle grow the window of this sender in slow start until its first loss. Call it when the sender starts.
proc growth::by_oracle {tcp kind} {
    variable id
    variable rule
    variable window
    variable acked
    variable senders
    set id($tcp) [incr senders]
    set rule($tcp) $kind
    set window($tcp) [expr {double([$tcp set cwnd_])}]
    set acked($tcp) [$tcp set ack_]
    $tcp attach [watcher [list growth::changed $tcp]]
    $tcp trace cwnd_
}

proc growth::forget {tcp} {
    variable id
    variable rule
    variable window
    variable acked
    unset -nocomplain id($tcp) rule($tcp) window($tcp) acked($tcp)
}

# ns-2 changed the window: before it sends what the new one allows.
proc growth::changed {tcp line} {
    variable id
    variable rule
    variable window
    variable acked
    variable busy
    if {$busy || ![info exists rule($tcp)]} return
    if {[$tcp set ncwndcuts_] > 0 || [$tcp set nrexmit_] > 0} {
        forget $tcp
        return
    }
    set now [expr {double([$tcp set cwnd_])}]
    set before $window($tcp)
    set ssthresh [$tcp set ssthresh_]
    set covered [expr {[$tcp set ack_] - $acked($tcp)}]
    set acked($tcp) [$tcp set ack_]
    # Slow start alone adds a whole segment; six digits are what ns-2 shows.
    if {$before < $ssthresh && abs($now - $before - 1) < 0.02} {
        set now [grown $tcp $before $ssthresh $covered]
        set busy 1
        $tcp set cwnd_ $now
        set busy 0
    }
    set window($tcp) $now
}

proc growth::grown {tcp before ssthresh covered} {
    variable id
    variable rule
    variable after
    variable threshold
    set end [expr {int(min($ssthresh, $threshold))}]
    set answer [oracle::ask "grow $id($tcp) $rule($tcp) $before $end $covered"]
    if {$answer ne "standard"} { return [expr {double($answer)}] }
    switch $after {
        avoidance { return [expr {$before + 1.0 / $before}] }
        slow-start { return [expr {$before + 1.0}] }
        hover {
            lassign $rule($tcp) - f mice
            set whole [expr {floor(($mice - $before) / $f)}]
            return [expr {$before + ($whole == 0 ? 1.0 : $whole) / $before}]
        }
        formula {
            set dmax [lindex $rule($tcp) 1]
            set d [expr {$dmax + (1 - $dmax) * ($before - $end) / (1.0 - $end)}]
            return [expr {$before + min($covered, 2) / $d}]
        }
        default { fail "after=$after: avoidance, slow-start, hover or formula" }
    }
}

# Ends the run. The oracle's time counts once it has ended.
proc finish {} {
    if {$oracle::pipe ne ""} { close $oracle::pipe }
    set stat [open /proc/self/stat]
    set fields [split [regsub {^.*\) } [read $stat] ""]]
    close $stat
    set ticks 0
    foreach field [lrange $fields 11 14] { incr ticks $field }
    puts "end [format %.2f [expr {$ticks / 100.0}]]"
    exit 0
}
