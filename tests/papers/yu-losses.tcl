# yu.tcl for rules that ask when losses were, where a loss is what halves a window, and not each packet: Yu and Newman, section 4,
# take the time from one drop to the next as that in which a window grows back by 1/R, and equation 5 the ratio of two such times
# as a number of senders. What a sender loses until all that it has lost is acknowledged costs no further halving: the oracle is
# told `recovery`, in which no new loss begins.

set file [open [file join [file dirname [info script]] yu.tcl]]
set script [read $file]
close $file
if {![regexp {^(.*\n)\$ns run\n$} $script -> setup]} {
    puts stderr "yu.tcl does not end with the run"
    exit 3
}
eval $setup

array set lost {}

# The fields of a trace line: event time from to type size flags fid source destination segment ..
proc dropped {line} {
    global live lost advised network
    set i [lindex $line 7]
    if {!$advised || ![info exists live($i)]} return
    set tcp $live($i)
    set segment [lindex $line 10]
    set repairing [expr {[info exists lost($i)] && [$tcp set ack_] < $lost($i)}]
    set lost($i) [expr {$repairing ? max($segment, $lost($i)) : $segment}]
    oracle::ask "loss [now] $network $i [$tcp set cwnd_] [expr {$repairing ? "recovery" : [phase $tcp]}]"
}

$ns run
