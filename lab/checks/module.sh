#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# In a guest with a stock kernel, as root: policies come, go and are exchanged, their cgroups and their
# daemons with them, while memory is faulted in there.  The module is unloaded in between whenever nobody
# holds it, and never while somebody does.
#
# module.sh MTHP_EXT MODULE.ko ROUNDS		prints TAP
M=$1 KO=$2 ROUNDS=$3 N=0 BAD=0
T=/sys/fs/cgroup/stress
LOG=/tmp/stress.log

is() { # NAME COMMAND...: a test
	name=$1; shift; N=$((N + 1))
	if "$@" >/tmp/is.log 2>&1; then echo "ok $N $name"; else sed 's/^/# /' /tmp/is.log $LOG; echo "not ok $N $name"; BAD=1; fi
}
not() { ! "$@"; }
start() { # a daemon on $T, ready
	$M run --root $T "$@" >$LOG 2>&1 & D=$!
	for _ in $(seq 300); do grep -q attached $LOG && return 0; kill -0 $D 2>/dev/null || return 1; sleep 0.1; done
	return 1
}
free() { # nobody holds the module any more: maps go a grace period after their link
	for _ in $(seq 100); do rmmod mthp_hook 2>/dev/null && return 0; sleep 0.1; done
	return 1
}
load() { free; insmod $KO; }
hooked() { grep -q thp_vma_allowable_orders /sys/kernel/tracing/enabled_functions 2>/dev/null ||
	grep -q thp_vma_allowable_orders /sys/kernel/debug/tracing/enabled_functions; }

echo always >/sys/kernel/mm/transparent_hugepage/enabled
# Processes of the cgroup, as long as it may have any.
faults() { # SIZE TIMES
	while :; do
		if [ -e /tmp/hold ]; then sleep 0.1; else
			sh -c "echo 0 >$T/cgroup.procs; exec dd if=/dev/zero of=/dev/null bs=$1 count=$2"
		fi
	done 2>/dev/null
}
faults 8M 4 & A=$!
faults 100k 99 & B=$!
empty() { # the cgroup is removed
	touch /tmp/hold
	for _ in $(seq 100); do rmdir $T 2>/dev/null && break; sleep 0.1; done
	rm /tmp/hold
	[ ! -d $T ]
}
counted() { sed -n "s/^$1 //p" $T/memory.stat; }
narrowed() { # faults in the cgroup go on, and none of them gets a huge page
	huge=$(counted thp_fault_alloc) all=$(counted pgfault)
	sleep 2
	echo "huge $huge, $(counted thp_fault_alloc), all $all, $(counted pgfault)"
	[ "$(counted pgfault)" -gt "$all" ] && [ "$(counted thp_fault_alloc)" = "$huge" ]
}
mkdir -p $T
is "nothing is patched before the first policy" not hooked
for round in $(seq "$ROUNDS"); do
	mkdir -p $T
	if ! start --policy fixed --cap 64K; then is "round $round: a policy is attached" false; break; fi
	if [ "$round" = 1 ]; then is "a policy patches the function" hooked; is "it binds who faults meanwhile" narrowed; fi
	rmmod mthp_hook 2>/dev/null && is "round $round: unloading is refused while one is attached" false
	case $((round % 4)) in
	0) kill -9 $D ;;
	1) kill $D ;;
	2) empty || is "round $round: the cgroup is removed under its policy" false ;;
	3)	# Kept, taken over by another daemon with other values, and detached.
		kill $D; wait $D
		start --policy fixed --cap 64K --on-exit keep && kill $D && wait $D &&
			start --policy fixed --cap 2M --on-exit keep && kill $D && wait $D &&
			$M detach --root $T >>$LOG 2>&1 || is "round $round: a kept policy is taken over" false ;;
	esac
	wait $D
	if [ $((round % 8)) = 0 ]; then load || is "round $round: the module is unloaded and loaded" false; fi
done
is "all rounds were run" [ "$round" = "$ROUNDS" ]
is "nothing is attached" sh -c "$M status | grep -q 'no policy is attached'"
is "the module can be unloaded" free
is "nothing is patched any more" not hooked
kill $A $B
echo "1..$N"
exit $BAD
