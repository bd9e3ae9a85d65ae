# One long transfer on a path of 191 packets: Barakat and Altman. At which window does a buffer of B packets overflow?
# Prints `drop SECONDS WINDOW PHASE`, the first drop, or `none WINDOW` if slow start ended without one.

source [file join [file dirname [info script]] common.tcl]

options {
    oracle "" growth standard after slow-start
    buffer 50 delack no threshold 0 rule-threshold 0 seconds 60
}
set growth::after $option(after)
if {$option(rule-threshold) > 0} { set growth::threshold $option(rule-threshold) }
old_senders 512 100000

set ns [new Simulator]
set sender [$ns node]
set near [$ns node]
set far [$ns node]
$ns duplex-link $sender $near 100Mb 1ms DropTail
$ns duplex-link $near $far 1.5Mb 279ms DropTail
$ns queue-limit $sender $near 100000
$ns queue-limit $near $far $option(buffer)

set tcp [new Agent/TCP/Reno]
set sink [expr {$option(delack) ? [new Agent/TCPSink/DelAck] : [new Agent/TCPSink]}]
$ns attach-agent $sender $tcp
$ns attach-agent $far $sink
$ns connect $tcp $sink
set transfer [new Application/FTP]
$transfer attach-agent $tcp

proc dropped {line} {
    global ns tcp
    set phase [expr {[$tcp set cwnd_] < [$tcp set ssthresh_] ? "slow-start" : "avoidance"}]
    puts "drop [format %.6f [$ns now]] [$tcp set cwnd_] $phase"
    finish
}
on_drop $ns $near $far dropped

proc start {} {
    global option tcp transfer
    if {$option(threshold) > 0} { $tcp set ssthresh_ $option(threshold) }
    if {$option(growth) ne "standard"} {
        oracle::start $option(oracle)
        growth::by_oracle $tcp $option(growth)
    }
    $transfer start
}
$ns at 0.1 start
$ns at $option(seconds) { puts "none [$tcp set cwnd_]"; finish }
$ns run
