# A transfer's first seconds on long paths: Aron and Druschel, sections 3 and 5.2. One sender on a satellite link, or eight on a
# fast wide-area one; the threshold and the spacing of a paced slow start are the project's own.
#
# Prints `at SECONDS PERCENT`, the effective throughput up to then: what was acknowledged, of what the bottleneck can carry;
# `threshold SECONDS SEGMENTS` for each that a sender measured; and `timeouts COUNT`.

source [file join [file dirname [info script]] common.tcl]

# path: satellite or wan. scheme: original, threshold (measured), paced (as well), or given (`threshold` segments from the
# begin). tick: clock of round trips and timeouts in seconds; event: of paced segments.
options {
    oracle "" seed 1 path satellite scheme original
    threshold 0 tick 0.5 event 0.01 seconds 60 delack yes spread 0
}
switch $option(path) {
    satellite { lassign {1 10Mb 1.5Mb 289ms 0.5ms 70 512 4 1000} senders access rate delay near queue bytes initial window }
    wan { lassign {8 100Mb 155Mb 29ms 0.5ms 200 1500 3 341} senders access rate delay near queue bytes initial window }
    default { fail "path=$option(path): satellite or wan" }
}
if {$option(scheme) ni {original threshold paced given}} {
    fail "scheme=$option(scheme): original, threshold, paced or given"
}
# Bytes on the wire, so that a packet is as large as the paper says.
Agent/TCP set windowInit_ $initial
Agent/TCP set delay_growth_ false
Agent/TCP set packetSize_ [expr {$bytes - 40}]
Agent/TCP set tcpip_base_hdr_size_ 40
Agent/TCP set window_ $window
Agent/TCP set tcpTick_ $option(tick)

set ns [new Simulator]
set starts [new RNG]
$starts seed [expr {$option(seed) * 10 + 1}]
set r1 [$ns node]
set r2 [$ns node]
$ns duplex-link $r1 $r2 $rate $delay DropTail
$ns queue-limit $r1 $r2 $queue
$ns queue-limit $r2 $r1 $queue

set oracle_needed [expr {$option(scheme) in {threshold paced}}]
if {$oracle_needed} { oracle::start $option(oracle) }

set all {}
for {set i 0} {$i < $senders} {incr i} {
    set from [$ns node]
    set to [$ns node]
    $ns duplex-link $from $r1 $access $near DropTail
    $ns duplex-link $r2 $to $access $near DropTail
    set tcp [new Agent/TCP/Reno]
    set sink [expr {$option(delack) ? [new Agent/TCPSink/DelAck] : [new Agent/TCPSink]}]
    if {$option(delack)} { $sink set interval_ 200ms }
    $ns attach-agent $from $tcp
    $ns attach-agent $to $sink
    $ns connect $tcp $sink
    set transfer [new Application/FTP]
    $transfer attach-agent $tcp
    lappend all $tcp
    set number($tcp) $i
    # Assumed: all in the same instant. Spread over milliseconds, the first flights do not meet in the queue, and each sender takes
    # its access link's rate for the bottleneck's.
    $ns at [expr {$option(spread) > 0 ? [$starts uniform 0 $option(spread)] : 0.0}] [list begin $tcp $transfer]
}

proc begin {tcp transfer} {
    global option oracle_needed acked sent_at
    if {$option(scheme) eq "given"} { $tcp set ssthresh_ $option(threshold) }
    if {$oracle_needed} {
        set acked($tcp) 0
        set sent_at($tcp) [$::ns now]
        $tcp attach [watcher [list acknowledged $tcp]]
        $tcp trace cwnd_
    }
    $transfer start
}

# Slow start opens the window with every acknowledgement; a loss ends the measurement.
proc acknowledged {tcp line} {
    global ns option acked number measured busy rtt sent_at
    if {[info exists busy] || [info exists measured($tcp)]} return
    if {[$tcp set ncwndcuts_] > 0 || [$tcp set nrexmit_] > 0} {
        set measured($tcp) lost
        return
    }
    set new [expr {[$tcp set ack_] + 1 - $acked($tcp)}]
    if {$new <= 0} return
    # The round trip: from the first segment, then as the window's own clock counts, without the queue of a single flight.
    if {![info exists rtt($tcp)]} { set rtt($tcp) [expr {[$ns now] - $sent_at($tcp)}] }
    incr acked($tcp) $new
    set now [format %.0f [expr {[$ns now] * 1e6}]]
    set answer [oracle::ask "measure $number($tcp) $now $new [format %.0f [expr {$rtt($tcp) * 1e6}]]"]
    if {$answer eq "none"} return
    lassign $answer segments state
    puts "threshold [format %.6f [$ns now]] $segments $state"
    set busy 1
    $tcp set ssthresh_ $segments
    unset busy
    if {$state eq "settled"} { set measured($tcp) settled }
    if {$option(scheme) eq "paced" && ![info exists ::paced($tcp)]} {
        set ::paced($tcp) 1
        set target [expr {$segments / 2}]
        set rate [expr {$segments / $rtt($tcp)}]
        set in_flight [expr {[$tcp set t_seqno_] - [$tcp set ack_] - 1}]
        lassign [oracle::ask "paced $target $in_flight $rtt($tcp) [expr {1.0 / $option(event)}] $rate"] n spacing
        open_one $tcp $n $spacing $target
    }
}

# One more segment each `spacing`, up to the target.
proc open_one {tcp n spacing target} {
    global ns busy
    if {$n <= 0 || [$tcp set ncwndcuts_] > 0} return
    set cwnd [$tcp set cwnd_]
    if {$cwnd >= $target} return
    set busy 1
    $tcp set cwnd_ [expr {$cwnd + 1}]
    unset busy
    $tcp advanceby 0
    $ns at [expr {[$ns now] + $spacing}] [list open_one $tcp [expr {$n - 1}] $spacing $target]
}

proc sum {} {
    set sum 0
    foreach tcp $::all { incr sum [expr {[$tcp set ack_] + 1}] }
    return $sum
}

proc look {} {
    global ns bytes rate option all
    set t [$ns now]
    set bits [expr {[sum] * $bytes * 8.0}]
    puts "at [format %.1f $t] [format %.3f [expr {100.0 * $bits / ([string trimright $rate Mb] * 1e6 * $t)}]]"
    if {$t + 1e-9 >= $option(seconds)} {
        set timeouts 0
        foreach tcp $all { incr timeouts [$tcp set nrexmit_] }
        puts "timeouts $timeouts"
        finish
    }
}
foreach t {0.7 1 2 3 4 5 10 20 30 40 60} {
    if {$t <= $option(seconds)} { $ns at $t look }
}
if {$option(seconds) ni {0.7 1 2 3 4 5 10 20 30 40 60}} { $ns at $option(seconds) look }
$ns run
