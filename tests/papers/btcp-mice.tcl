# Many transfers of random size and start that share a bottleneck: Goncalves, chapter 5. Each kind of sender sees the same
# transfers, since the generator is drawn from in one order, whatever the senders do.
#
# Prints a line `flow RULE SEGMENTS START SECONDS SENT` for each main transfer that ended, `drop RULE SEGMENTS` for each of
# their packets that a queue dropped, and `begun FLOWS`.

source [file join [file dirname [info script]] common.tcl]

options {
    oracle "" seed 1 after avoidance
    flows 250 growth standard mixed 0 other standard
    rate 1.5Mb queue 7 hops 1 access 5ms
    reverse no background no udp no delack no rounded up
}
old_senders 1024 100000
set growth::after $option(after)

global defaultRNG
$defaultRNG seed $option(seed)
set ns [new Simulator]

# A node per source and receiver of the main traffic, five a side; a router more than bottlenecks.
set routers {}
for {set i 0} {$i <= $option(hops)} {incr i} { lappend routers [$ns node] }

proc leaf {router} {
    global ns option
    set node [$ns node]
    $ns duplex-link $node $router 10Mb $option(access) DropTail
    return $node
}

set first [lindex $routers 0]
set last [lindex $routers end]
foreach i {0 1 2 3 4} {
    lappend left [leaf $first]
    lappend right [leaf $last]
}

# Of the packet that a line of the trace is about, if a main transfer sent it: fid is its number.
proc dropped {line} {
    global size rule
    set number [lindex $line 7]
    if {[lindex $line 4] eq "tcp" && [info exists size($number)]} {
        puts "drop [lindex $rule($number) 0] $size($number)"
    }
}

foreach a [lrange $routers 0 end-1] b [lrange $routers 1 end] {
    $ns duplex-link $a $b $option(rate) 35ms DropTail
    foreach {x y} [list $a $b $b $a] {
        $ns queue-limit $x $y $option(queue)
        on_drop $ns $x $y dropped
    }
}

set sizes [new RandomVariable/Pareto]
$sizes set shape_ 1.2
# ns-2 asks for the mean: scale * shape / (shape - 1), with a scale of 4 packets.
$sizes set avg_ [expr {4 * 1.2 / 0.2}]
set starts [new RandomVariable/Uniform]
$starts set min_ 0
$starts set max_ 900

Agent/TCP instproc done {} { ended $self }

proc ended {tcp} {
    global ns number size begin rule
    growth::forget $tcp
    if {![info exists number($tcp)]} return
    set i $number($tcp)
    set took [format %.6f [expr {[$ns now] - $begin($i)}]]
    puts "flow [lindex $rule($i) 0] $size($i) [format %.6f $begin($i)] $took [$tcp set ndatapack_]"
}

proc begin {tcp transfer packets kind} {
    if {$kind ne "standard"} { growth::by_oracle $tcp $kind }
    $transfer produce $packets
}

set all 0
proc transfer {from to kind is_main} {
    global ns option sizes starts all number size begin rule
    set at [$starts value]
    set packets [$sizes value]
    set packets [expr {$option(rounded) eq "up" ? int(ceil($packets)) : int($packets)}]
    set tcp [new Agent/TCP/Newreno]
    set sink [expr {$option(delack) ? [new Agent/TCPSink/DelAck] : [new Agent/TCPSink]}]
    if {$option(delack)} { $sink set interval_ 200ms }
    incr all
    $tcp set fid_ $all
    if {$is_main} {
        set number($tcp) $all
        set size($all) $packets
        set begin($all) $at
        set rule($all) $kind
    }
    $ns attach-agent $from $tcp
    $ns attach-agent $to $sink
    $ns connect $tcp $sink
    set transfer [new Application/FTP]
    $transfer attach-agent $tcp
    $ns at $at [list begin $tcp $transfer $packets $kind]
}

foreach kind [list $option(growth) $option(other)] {
    if {$kind ne "standard"} {
        oracle::start $option(oracle)
        break
    }
}
# `mixed` of the main transfers, as many at each node, are of the other kind.
for {set i 0} {$i < $option(flows)} {incr i} {
    set node [expr {$i % 5}]
    set kind [expr {$i < $option(mixed) ? $option(other) : $option(growth)}]
    transfer [lindex $left $node] [lindex $right $node] $kind yes
}
if {$option(reverse)} {
    for {set i 0} {$i < $option(flows)} {incr i} {
        set node [expr {$i % 5}]
        set kind [expr {$i < $option(mixed) ? $option(other) : $option(growth)}]
        transfer [lindex $right $node] [lindex $left $node] $kind no
    }
}
# One source a bottleneck with as many transfers as the main traffic, across that bottleneck alone.
if {$option(background)} {
    foreach a [lrange $routers 0 end-1] b [lrange $routers 1 end] {
        set from [leaf $a]
        set to [leaf $b]
        for {set i 0} {$i < $option(flows)} {incr i} { transfer $from $to $option(growth) no }
    }
}
if {$option(udp)} {
    set udp [new Agent/UDP]
    set null [new Agent/Null]
    $ns attach-agent [leaf $first] $udp
    $ns attach-agent [leaf $last] $null
    $ns connect $udp $null
    $udp set packetSize_ 1024
    set source [new Application/Traffic/CBR]
    $source set packetSize_ 1024
    $source set rate_ 500kb
    $source attach-agent $udp
    $ns at 300 "$source start"
    $ns at 500 "$source stop"
}

puts "begun $option(flows)"
$ns at 1000 finish
$ns run
