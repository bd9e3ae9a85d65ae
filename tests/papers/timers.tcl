# A slow start beside a transfer on a narrow path, with coarse and fine measurement of round trips: Aron and Druschel, Figure 7.
#
# The first sender begins at once, the second after 15 s. Prints `share PERCENT`, of what the bottleneck can carry, acknowledged
# in the 5 s that follow, both together, and `timeouts COUNT` in that time.

source [file join [file dirname [info script]] common.tcl]

# timers: original, which measure and fire by a clock of 500 ms, or proposed, which measure by one of 1 ms: two ticks of the clock
# that they fire by are then the least, between 0.5 and 1 s. Assumed: 0.75 s, since ns-2 has one clock. gap: when the second begins.
options { oracle "" seed 1 timers original gap 15 }
switch $option(timers) {
    original { lassign {0.5 0} tick least }
    proposed { lassign {0.001 0.75} tick least }
    default { fail "timers=$option(timers): original or proposed" }
}
Agent/TCP set windowInit_ 1
Agent/TCP set delay_growth_ false
Agent/TCP set packetSize_ 1460
Agent/TCP set window_ 43
Agent/TCP set tcpTick_ $tick
Agent/TCP set minrto_ $least
Agent/TCP set rfc2988_ false

ns-random $option(seed)
set phase [new RNG]
$phase seed [expr {$option(seed) * 10 + 1}]
set ns [new Simulator]
set r1 [$ns node]
set r2 [$ns node]
$ns duplex-link $r1 $r2 1.5Mb 49ms DropTail
$ns queue-limit $r1 $r2 20
$ns queue-limit $r2 $r1 20

# When the second begins, against the first one's sawtooth, is chance.
set second [expr {$option(gap) + [$phase uniform 0 5]}]
set all {}
foreach at [list 0.0 $second] {
    set from [$ns node]
    set to [$ns node]
    $ns duplex-link $from $r1 10Mb 0.5ms DropTail
    $ns duplex-link $r2 $to 10Mb 0.5ms DropTail
    set tcp [new Agent/TCP/Reno]
    set sink [new Agent/TCPSink/DelAck]
    $sink set interval_ 200ms
    $ns attach-agent $from $tcp
    $ns attach-agent $to $sink
    $ns connect $tcp $sink
    set transfer [new Application/FTP]
    $transfer attach-agent $tcp
    lappend all $tcp
    $ns at $at "$transfer start"
}

proc sum {variable} {
    set sum 0
    foreach tcp $::all { incr sum [$tcp set $variable] }
    return $sum
}

$ns at $second { set before [list [sum ack_] [sum nrexmit_]] }
$ns at [expr {$second + 5}] {
    set packets [expr {[sum ack_] - [lindex $before 0]}]
    puts "share [format %.3f [expr {100.0 * $packets * 1500 * 8 / (1.5e6 * 5)}]]"
    puts "timeouts [expr {[sum nrexmit_] - [lindex $before 1]}]"
    finish
}
$ns run
