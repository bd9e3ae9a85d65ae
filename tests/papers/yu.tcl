# A server with five clients behind one bottleneck: Yu and Newman, section 5.1, with openings by the project's own rules.
#
# Prints `first SECONDS PACKETS`, what the connections had acknowledged within their first seconds, together; `total PACKETS`;
# `connections COUNT`; and, with advice, `openings COUNT MEAN-WINDOW MEAN-THRESHOLD`. `Assumed` marks what the text leaves open.

source [file join [file dirname [info script]] common.tcl]

# scheme: reno, or a rule and a shape of the start, as liss:threshold. losses: `episodes` or `each`, what counts as one.
# access: delay of the server's and the clients' links; cross: that of the cross traffic's.
options {
    oracle "" seed 1 scheme reno
    bandwidth 16Mb delay 50ms access 25ms cross 1ms queue 50
    life 100 shape 1.35 arrivals 5 seconds 3000 losses episodes
    window 1 threshold 10
}
set network 198.51.100.0/24
set mss 1000
set measured {1 2 3 4 5 6 7 8 9 10}

old_senders $mss 100

proc stream {seed} {
    set stream [new RNG]
    $stream seed $seed
    return $stream
}
# Each kind of chance by itself, so that every scheme meets the same connections.
set crossings [stream [expr {$option(seed) * 10 + 1}]]
set arrivals [new RandomVariable/Exponential]
$arrivals set avg_ $option(arrivals)
$arrivals use-rng [stream [expr {$option(seed) * 10 + 2}]]
set lives [new RandomVariable/Pareto]
$lives set avg_ $option(life)
$lives set shape_ $option(shape)
$lives use-rng [stream [expr {$option(seed) * 10 + 3}]]
set clients [stream [expr {$option(seed) * 10 + 4}]]

set ns [new Simulator]
foreach name {server r1 r2 r3} { set $name [$ns node] }
# Assumed: the access links' rate and delay.
$ns duplex-link $server $r1 100Mb $option(access) DropTail
foreach {a b} [list $r1 $r2 $r2 $r3] {
    $ns duplex-link $a $b $option(bandwidth) $option(delay) DropTail
    $ns queue-limit $a $b $option(queue)
    $ns queue-limit $b $a $option(queue)
    on_drop $ns $a $b dropped
}
for {set i 0} {$i < 5} {incr i} {
    set client($i) [$ns node]
    $ns duplex-link $client($i) $r3 100Mb $option(access) DropTail
}

proc sender {from to} {
    global ns
    set tcp [new Agent/TCP/Reno]
    set sink [new Agent/TCPSink]
    $ns attach-agent $from $tcp
    $ns attach-agent $to $sink
    $ns connect $tcp $sink
    return $tcp
}

# Assumed: five cross transfers that begin a second apart in the mean, and stay.
set at 0.0
for {set i 0} {$i < 5} {incr i} {
    set from [$ns node]
    set to [$ns node]
    $ns duplex-link $from $r1 100Mb $option(cross) DropTail
    $ns duplex-link $to $r2 100Mb $option(cross) DropTail
    set at [expr {$at + [$crossings exponential 1.0]}]
    set tcp [sender $from $to]
    set transfer [new Application/FTP]
    $transfer attach-agent $tcp
    $ns at $at [list cross $tcp $transfer]
}

proc cross {tcp transfer} {
    $tcp set ssthresh_ $::option(threshold)
    $transfer start
}

proc now {} { format %.6f [$::ns now] }

set advised [expr {$option(scheme) ne "reno"}]
if {$advised} {
    lassign [split $option(scheme) :] rule form
    oracle::start $option(oracle)
    oracle::ask "rule $rule paper $mss $option(window) 1 1 $form $option(losses)"
}

set count 0
array set live {}
array set openings {count 0 window 0 threshold 0}
foreach n $measured { set first($n) 0 }
set total 0

# What a sender has got through so far.
proc acknowledged {tcp} { expr {[$tcp set ack_] + 1} }

proc phase {tcp} { expr {[$tcp set cwnd_] < [$tcp set ssthresh_] ? "slow_start" : "avoidance"} }

# Tells the oracle where a sender is, as a gateway sees it about once a round trip.
proc observe {i} {
    global live seen network
    set tcp $live($i)
    set acked [acknowledged $tcp]
    oracle::ask "state [now] $network $i [phase $tcp] [$tcp set cwnd_] [expr {$acked - $seen($i)}] [$tcp set ssthresh_]"
    set seen($i) $acked
    set rtt [expr {[$tcp set srtt_] / 8.0 * [$tcp set tcpTick_] * 1e6}]
    if {$rtt > 0} { oracle::ask "rtt [now] $network $i [format %.0f $rtt]" }
}

proc observe_all {} {
    foreach i [lsort -integer [array names ::live]] { observe $i }
}

proc look {} {
    global ns
    observe_all
    $ns at [expr {[$ns now] + 0.25}] look
}

# The fields of a trace line: event time from to type size flags fid ..
proc dropped {line} {
    global live advised network
    set i [lindex $line 7]
    if {!$advised || ![info exists live($i)]} return
    set tcp $live($i)
    oracle::ask "loss [now] $network $i [$tcp set cwnd_] [phase $tcp]"
}

proc arrive {} {
    global ns option arrivals lives clients client server count live seen advised network mss measured openings
    $ns at [expr {[$ns now] + [$arrivals value]}] arrive
    set ends [$lives value]
    set to $client([expr {int([$clients uniform 0 5])}])
    set i [incr count]
    set tcp [sender $server $to]
    $tcp set fid_ $i
    set transfer [new Application/FTP]
    $transfer attach-agent $tcp
    foreach n $measured {
        if {$n < $ends} { $ns at [expr {[$ns now] + $n}] "incr first($n) \[acknowledged $tcp\]" }
    }
    $ns at [expr {[$ns now] + $ends}] [list depart $i $transfer $ends]
    # ns-2 sets both from its defaults when the simulation begins to run: the paper's default threshold is set here.
    $tcp set ssthresh_ $option(threshold)
    if {!$advised} {
        set live($i) $tcp
        $transfer start
        return
    }
    observe_all
    set live($i) $tcp
    set seen($i) 0
    oracle::ask "open [now] $network $i"
    lassign [oracle::ask "start [now] $network $i unknown"] cwnd ssthresh rate burst
    if {$cwnd eq "none"} {
        $transfer start
        return
    }
    incr openings(count)
    set openings(window) [expr {$openings(window) + $cwnd}]
    set openings(threshold) [expr {$openings(threshold) + min($ssthresh, 100)}]
    $tcp set ssthresh_ $ssthresh
    $tcp set cwnd_ $cwnd
    if {$rate == 0 || $cwnd <= $burst} {
        $transfer start
        return
    }
    $tcp advanceby $burst
    release $i $transfer [expr {$cwnd - $burst}] [expr {double($mss) / $rate}]
}

# One more segment of a paced window each `gap` seconds, then all that there is to send.
proc release {i transfer left gap} {
    global ns live
    if {![info exists live($i)]} return
    if {$left == 0} {
        $transfer start
        return
    }
    $live($i) advanceby 1
    $ns at [expr {[$ns now] + $gap}] [list release $i $transfer [expr {$left - 1}] $gap]
}

# The client leaves: nothing new is sent to it.
proc depart {i transfer lived} {
    global live seen total first measured advised network
    set tcp $live($i)
    set done [acknowledged $tcp]
    incr total $done
    foreach n $measured {
        if {$n >= $lived} { incr first($n) $done }
    }
    if {$advised} {
        observe $i
        oracle::ask "end [now] $network $i [$tcp set cwnd_] application [expr {$done * $::mss}]"
        oracle::ask "close [now] $network $i"
    }
    $transfer stop
    unset live($i)
}

proc report {} {
    global count live total first measured openings
    foreach i [array names live] { incr total [acknowledged $live($i)] }
    foreach n $measured { puts "first $n $first($n)" }
    puts "total $total"
    puts "connections $count"
    if {$openings(count) > 0} {
        puts "openings $openings(count) [format {%.3f %.3f} [expr {double($openings(window)) / $openings(count)}] \
            [expr {double($openings(threshold)) / $openings(count)}]]"
    }
    finish
}

$ns at 0.0 arrive
if {$advised} { $ns at 0.125 look }
$ns at $option(seconds) report
$ns run
