# TCP/SPAND, section 6: Figures 10 to 19, with starts by the project's own code.
#
# Prints `transfers SCHEME COUNT MEAN-SECONDS` for each scheme and, where there was advice, `starts COUNT MEAN-SEGMENTS`. Of
# what the text leaves open, `assumed` marks what was chosen here.

source [file join [file dirname [info script]] common.tcl]

# scheme: reno-ssr, reno-nssr, newreno-ssr, newreno-nssr or spand; mix: the scheme of every second sender; size in segments.
# reno-tick: the clock of the schemes without advice. rule, mode, samples: how estimates are made and how far starts go.
# timeouts: whether a timeout in congestion avoidance gives a sample.
options {
    oracle "" seed 1 scheme newreno-ssr mix none
    n 6 size 30 rounds 40 jitter 10 idle 120
    telnets 0 udp 0 udp-kbps 12 hops 1 reno-tick 0.05
    rule spand mode paper samples 1 timeouts sample
}

if {$option(timeouts) ni {sample none}} { fail "timeouts=$option(timeouts): sample or none" }

set network 198.51.100.0/24
set mss 1000

# Sources of chance: one for the starts, so that every scheme sees the same, and ns-2's own for everything else.
ns-random $option(seed)
set start_times [new RNG]
$start_times seed [expr {1000 + $option(seed)}]

# ns-2's defaults of the year 2000, by the notes in ns-default.tcl.
old_senders $mss 100
Agent/TCP set syn_ false
Agent/TCP set singledup_ 0
Agent/TCP set minrto_ 0
Agent/TCP set maxrto_ 64
Agent/TCP set rfc2988_ false
Agent/TCP set rtxcur_init_ 6.0
Agent/TCP set updated_rttvar_ false
Agent/TCP set precisionReduce_ false
Agent/TCP set useHeaders_ false
Agent/TCP set tcpTick_ 0.05
Agent/TCP/Newreno set newreno_changes1_ 0
Agent/TCP/Newreno set partial_window_deflation_ 0

set ns [new Simulator]

# The routers: one bottleneck of 1.6 Mbit/s, 50 ms and ten packets, or several in a row that share these 50 ms (scenario 4).
set hop_delay [expr {0.05 / $option(hops)}]
for {set i 0} {$i <= $option(hops)} {incr i} {
    set router($i) [$ns node]
}
for {set i 0} {$i < $option(hops)} {incr i} {
    set next $router([expr {$i + 1}])
    $ns duplex-link $router($i) $next 1.6Mb ${hop_delay}s DropTail
    $ns queue-limit $router($i) $next 10
    $ns queue-limit $next $router($i) 10
}

proc leaf {at} {
    global ns
    set node [$ns node]
    $ns duplex-link $node $at 10Mb 1ms DropTail
    return $node
}

# A sender at the first router and its receiver at the last.
proc connection {class} {
    global ns router option
    set tcp [new $class]
    set sink [new Agent/TCPSink]
    $ns attach-agent [leaf $router(0)] $tcp
    $ns attach-agent [leaf $router($option(hops))] $sink
    $ns connect $tcp $sink
    return $tcp
}

# Typing by ns-2's own distribution (tcplib).
for {set i 0} {$i < $option(telnets)} {incr i} {
    set telnet [new Application/Telnet]
    $telnet attach-agent [connection Agent/TCP/Reno]
    $telnet set interval_ 0
    $ns at 0.0 "$telnet start"
}

# ON/OFF sources across each bottleneck. Assumed: packets of 210 bytes, ns-2's default then; how many there are at each router.
for {set hop 0} {$hop < $option(hops) && $option(udp) > 0} {incr hop} {
    set from [leaf $router($hop)]
    set to [leaf $router([expr {$hop + 1}])]
    for {set i 0} {$i < $option(udp)} {incr i} {
        set udp [new Agent/UDP]
        set null [new Agent/Null]
        $ns attach-agent $from $udp
        $ns attach-agent $to $null
        $ns connect $udp $null
        set source [new Application/Traffic/Pareto]
        $source set packetSize_ 210
        $source set burst_time_ 1s
        $source set idle_time_ 2s
        $source set rate_ $option(udp-kbps)k
        $source set shape_ 1.2
        $source attach-agent $udp
        $ns at 0.0 "$source start"
    }
}

# --- starts on advice ---

# The paper names no least number of samples for an estimate: one of one connection unless asked otherwise.
if {"spand" in [list $option(scheme) $option(mix)]} {
    oracle::start $option(oracle)
    oracle::ask "rule $option(rule) $option(mode) $mss [Agent/TCP set windowInit_] $option(samples) 1"
}

proc now {} {
    global ns
    return [format %.6f [$ns now]]
}

# Follows a sender's window, for what a gateway would see of it.
proc follow {tcp} {
    remember $tcp
    $tcp attach [watcher [list changed $tcp]]
    $tcp trace cwnd_
}

proc remember {tcp} {
    set ::window($tcp) [list [$tcp set cwnd_] [$tcp set ssthresh_] [$tcp set nrexmit_]]
}

# The window changed: one that shrank met a loss. The paper takes a sample where a sender "detects a loss during congestion
# avoidance". Without SACK and probes most losses at the end of a transfer show as timeouts, so these count with `sample`; with
# `none` only fast retransmits do.
proc changed {tcp line} {
    global option writing window id network
    if {[info exists writing]} {
        return
    }
    lassign $window($tcp) cwnd ssthresh timeouts
    if {[$tcp set cwnd_] < $cwnd} {
        set phase [expr {$cwnd < $ssthresh ? "slow_start" : "avoidance"}]
        if {$option(timeouts) eq "none" && [$tcp set nrexmit_] > $timeouts} {
            set phase timeout
        }
        oracle::ask "loss [now] $network $id($tcp) $cwnd $phase"
    }
    remember $tcp
}

# Sets a sender's window and threshold to a start.
proc set_window {tcp cwnd ssthresh} {
    global writing
    set writing 1
    $tcp set cwnd_ $cwnd
    if {$ssthresh ne ""} {
        $tcp set ssthresh_ $ssthresh
    }
    unset writing
    remember $tcp
}

# --- transfers ---

# Begins a transfer: the whole at once, or on advice, with the rest of the first window at its pace.
proc begin {tcp} {
    global ns option mss network id group size began target started
    set began($tcp) [$ns now]
    incr target($tcp) $size
    if {$group($tcp) ne "spand"} {
        $tcp advanceby $size
        return
    }
    lassign [oracle::ask "start [now] $network $id($tcp) [expr {$size * $mss}]"] cwnd ssthresh rate burst
    if {$cwnd eq "none"} {
        set_window $tcp 1 ""
        $tcp advanceby $size
        return
    }
    incr started(count)
    incr started(segments) $cwnd
    set_window $tcp $cwnd $ssthresh
    set paced [expr {min($cwnd, $size)}]
    if {$rate == 0 || $paced <= $burst} {
        $tcp advanceby $size
        return
    }
    $tcp advanceby $burst
    release $tcp [expr {$paced - $burst}] [expr {$size - $paced}] [expr {double($mss) / $rate}]
}

# One more segment of a paced window each `gap` seconds, then the rest of the transfer.
proc release {tcp paced rest gap} {
    global ns
    if {$paced == 0} {
        if {$rest > 0} {
            $tcp advanceby $rest
        }
        return
    }
    $ns at [expr {[$ns now] + $gap}] [list release_one $tcp $paced $rest $gap]
}

proc release_one {tcp paced rest gap} {
    $tcp advanceby 1
    release $tcp [expr {$paced - 1}] $rest $gap
}

# Everything that was given to a sender so far is acknowledged.
proc ended {tcp} {
    global ns option mss network id group size began target done left times
    if {[$tcp set ack_] + 1 < $target($tcp)} {
        return
    }
    lappend times($group($tcp)) [expr {[$ns now] - $began($tcp)}]
    if {$group($tcp) eq "spand"} {
        set rtt [expr {[$tcp set srtt_] / 8.0 * [$tcp set tcpTick_] * 1e6}]
        if {$rtt > 0} {
            oracle::ask "rtt [now] $network $id($tcp) [format %.0f $rtt]"
        }
        oracle::ask "end [now] $network $id($tcp) [$tcp set cwnd_] window [expr {$size * $mss}]"
    }
    if {[incr left -1] == 0} {
        $ns at [expr {[$ns now] + $option(idle)}] round
    }
}

# Every sender transfers one file in a round.
proc round {} {
    global ns option senders left rounds start_times
    if {$rounds == 0} {
        report
        finish
    }
    incr rounds -1
    set left [llength $senders]
    foreach tcp $senders {
        $ns at [expr {[$ns now] + [$start_times uniform 0 $option(jitter)]}] [list begin $tcp]
    }
}

proc report {} {
    global times started
    foreach group [lsort [array names times]] {
        set n [llength $times($group)]
        set sum [expr [join $times($group) +]]
        puts "transfers $group $n [format %.6f [expr {$sum / $n}]]"
    }
    if {$started(count) > 0} {
        puts "starts $started(count) [format %.3f [expr {double($started(segments)) / $started(count)}]]"
    }
}

set schemes {reno-ssr reno-nssr newreno-ssr newreno-nssr spand}
array set started {count 0 segments 0}
set size $option(size)
set rounds $option(rounds)
set senders {}
for {set i 0} {$i < $option(n)} {incr i} {
    # In a mixture every second one, from the first.
    set scheme [expr {$option(mix) ne "none" && $i % 2 ? $option(mix) : $option(scheme)}]
    if {$scheme ni $schemes} {
        fail "`$scheme` is not a scheme: choose [join $schemes {, }]"
    }
    set tcp [connection Agent/TCP/[expr {[string match reno-* $scheme] ? "Reno" : "Newreno"}]]
    $tcp set slow_start_restart_ [string match *-ssr $scheme]
    if {[string match reno-* $scheme]} {
        $tcp set tcpTick_ $option(reno-tick)
    }
    set group($tcp) $scheme
    set id($tcp) $i
    set target($tcp) 0
    $tcp proc done {} { ended $self }
    lappend senders $tcp
    if {$scheme eq "spand"} {
        oracle::ask "open [now] $network $i"
        follow $tcp
    }
}
$ns at 0.001 round
$ns run
