#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Loads the module and tries it: memory of a cgroup that is made for that must get huge pages, none of them under a
# policy that forbids them, and some again after it. A module that fails is unloaded again.
#
# try.sh [MTHP_EXT [MODULE.ko]]		0: it works; 1: it does not; 2: it cannot be said here
EXT=${1:-mthp_ext} KO=$2
GROUP=/sys/fs/cgroup/mthp_try.$$
LOG=$(mktemp) RUN='' LOADED=''

end() { # CODE MESSAGE
	[ -z "$RUN" ] || { kill "$RUN" 2>/dev/null; wait "$RUN"; }
	rmdir "$GROUP" 2>/dev/null
	rm -f "$LOG"
	if [ "$1" = 1 ] && [ -n "$LOADED" ]; then
		# The kernel lets go of a policy a moment after its end.
		for _ in 1 2 3 4 5 6 7 8 9 10; do rmmod mthp_hook 2>/dev/null && break; sleep 1; done
	fi
	echo "mthp_hook: $2"
	exit "$1"
}
trap 'end 1 "interrupted"' INT TERM HUP
huge() { # faults that got a huge page, of 8 MiB of memory in the cgroup
	before=$(sed -n 's/^thp_fault_alloc //p' "$GROUP/memory.stat")
	sh -c 'echo 0 >"$0/cgroup.procs" && exec dd if=/dev/zero of=/dev/null bs=8M count=1' "$GROUP" 2>/dev/null
	after=$(sed -n 's/^thp_fault_alloc //p' "$GROUP/memory.stat")
	echo $((after - before))
}

if [ ! -d /sys/module/mthp_hook ]; then
	if [ -n "$KO" ]; then insmod "$KO"; else modprobe mthp_hook; fi || end 1 "it cannot be loaded; dmesg says why"
	LOADED=1
fi
"$EXT" support >"$LOG" || { cat "$LOG"; end 1 "$EXT support lacks something"; }
mkdir "$GROUP" || end 2 "no cgroup can be made below /sys/fs/cgroup"
[ -e "$GROUP/memory.stat" ] || end 2 "there is no memory controller: echo +memory >/sys/fs/cgroup/cgroup.subtree_control"
[ "$(huge)" -gt 0 ] || end 2 "no huge pages come without a policy either: transparent_hugepage/enabled is not always"

"$EXT" run --root "$GROUP" --policy fixed --cap 4K >"$LOG" 2>&1 &
RUN=$!
until grep -q attached "$LOG"; do
	kill -0 "$RUN" 2>/dev/null || { cat "$LOG"; end 1 "no policy can be attached"; }
	sleep 1
done
[ "$(huge)" = 0 ] || end 1 "huge pages come although the policy forbids them"
kill "$RUN"
wait "$RUN"
RUN=''
[ "$(huge)" -gt 0 ] || end 1 "no huge pages come after the policy's end"
end 0 "it works"
