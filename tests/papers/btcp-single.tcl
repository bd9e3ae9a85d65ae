# One transfer alone, with or without B-TCP: Goncalves, 4.3 (a link of 1 s) and 5.2 (the path of Figure 14).
# Prints `transfer SECONDS` and, once a change, `window SECONDS SEGMENTS`.

source [file join [file dirname [info script]] common.tcl]

options {
    oracle "" growth standard after avoidance
    packets 64 rate 1.5Mb delay 500ms queue 100000 access ""
}
old_senders 1024 100000
set growth::after $option(after)

set ns [new Simulator]
set left [$ns node]
set right [$ns node]
$ns duplex-link $left $right $option(rate) $option(delay) DropTail
$ns queue-limit $left $right $option(queue)
$ns queue-limit $right $left $option(queue)
set from $left
set to $right
if {$option(access) ne ""} {
    set from [$ns node]
    set to [$ns node]
    $ns duplex-link $from $left 10Mb $option(access) DropTail
    $ns duplex-link $right $to 10Mb $option(access) DropTail
}

set tcp [new Agent/TCP/Newreno]
set sink [new Agent/TCPSink]
$ns attach-agent $from $tcp
$ns attach-agent $to $sink
$ns connect $tcp $sink
set transfer [new Application/FTP]
$transfer attach-agent $tcp

Agent/TCP instproc done {} {
    global ns
    puts "transfer [format %.6f [$ns now]]"
    finish
}

proc start {} {
    global option tcp transfer
    if {$option(growth) ne "standard"} {
        oracle::start $option(oracle)
        growth::by_oracle $tcp $option(growth)
    }
    $transfer produce $option(packets)
}
$ns at 0 start
$ns at 1000 { fail "the transfer did not end within 1000 s" }
$ns run
