#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# In a guest with a stock kernel, as root: what the module does not know, it refuses, and what the kernel
# refuses, mthp_ext says.  Nothing is attached or patched in the end.
#
# module-refused.sh MTHP_EXT DIRECTORY	prints TAP; the modules are DIRECTORY/*/mthp_hook.ko
M=$1 D=$2 N=0 BAD=0
LOG=/tmp/refused.log

is() { # NAME COMMAND...: a test
	name=$1; shift; N=$((N + 1))
	if "$@" >/tmp/is.log 2>&1; then echo "ok $N $name"; else { cat /tmp/is.log; dmesg | tail -5; } | sed 's/^/# /'; echo "not ok $N $name"; BAD=1; fi
}
unload() { # maps go a grace period after who held them
	for _ in $(seq 100); do rmmod mthp_hook 2>/dev/null && return; sleep 0.1; done
	echo "# it cannot be unloaded"
}
refused() { # FILE PATTERN: it is not loaded; insmod or the kernel's log says so in these words
	dmesg -c >/dev/null
	insmod "$1" >$LOG 2>&1 && return 1
	dmesg >>$LOG
	grep -E "$2" $LOG && return 0
	cat $LOG; return 1
}
support() { # CODE CARRIER: what mthp_ext says of this kernel
	$M support >$LOG 2>&1; code=$?
	cat $LOG; [ $code = "$1" ] && grep -qx "carrier: $2" $LOG
}
cause() { # CAUSE REMEDY: why there is no carrier, and what to do; patterns
	$M support >$LOG 2>&1
	cat $LOG; grep -E "^  cause: .*$1" $LOG && grep -E "^  remedy: .*$2" $LOG && $M run 2>&1 | grep -E "hook: .*$1.* To mend that, .*$2"
}
types() { # of the kernel: there are none
	mount -t tmpfs none /sys/kernel/btf
	$M support >$LOG 2>&1; code=$?
	umount /sys/kernel/btf
	cat $LOG; [ $code = 11 ] && grep "^  remedy: boot a kernel with CONFIG_DEBUG_INFO_BTF=y" $LOG && ! grep -q mthp-ext-dkms $LOG
}
nothing() { # runs, attaches or is patched
	$M run >$LOG 2>&1; code=$?
	cat $LOG; [ $code = 5 ] && ! grep -q thp_vma_allowable_orders /sys/kernel/tracing/enabled_functions
}
lacks() { $M support | grep -E "^ +NO +reasons " && $M support | grep "without it: $1: "; }
designed() { # reclaim alone is not asked about: nothing is missing
	$M support >$LOG; cat $LOG
	grep -E "^ +part +reasons " $LOG && grep "without it: reclaim: " $LOG &&
		! grep -E "^ +NO |without it: swapin|^missing|remedy:" $LOG
}
said() { dmesg | grep "$1"; }

is "without the module there is no carrier" support 5 none
DKMS=/var/lib/dkms/mthp-hook DEP=/lib/modules/$(uname -r)/modules.dep
is "... and where there are no modules of this kernel it does not say that there is none" cause "cannot be told from here" "as root on the host"
mkdir -p "${DEP%/*}"
is "... and where there are, it says that it is not installed" cause "mthp_hook is not installed" mthp-ext-dkms
mkdir -p $DKMS
is "a module that DKMS has not built is told from that" cause "DKMS has built no module" "headers of this kernel"
echo updates/dkms/mthp_hook.ko.xz: >"$DEP"
is "... and one that is not loaded" cause "installed, and not loaded" "run .modprobe mthp_hook"
mv /dev/kmsg /dev/hidden
is "... and whether it was refused is not known without the log" cause "was refused cannot be told from here" "journalctl"
mv /dev/hidden /dev/kmsg
rm -r $DKMS "$DEP"
is "a kernel without types is said to be one" types
is "types of another kernel are refused" refused "$D/other/mthp_hook.ko" \
	'mthp_hook: .*type information is missing, or of another kernel build|failed to validate module \[mthp_hook\] BTF'
is "... and mthp_ext says that there is no carrier" support 5 none
is "... with what the kernel's log says of it" cause "was refused; the kernel.s log says .*mthp_hook.*(BTF|another kernel build)" "look the message up"
is "... and attaches nothing" nothing
is "a module without types is refused" refused "$D/without/mthp_hook.ko" \
	'mthp_hook: .*type information is missing, or of another kernel build'
is "... and nothing is attached" nothing

insmod "$D/namesake/mthp_hook.ko"
is "another module of the name keeps this one out" refused "$D/usual/mthp_hook.ko" 'File exists'
is "... and is no carrier" support 5 none
is "... and mthp_ext says which it is" cause "another module is loaded by the name" "rmmod mthp_hook"
is "... and nothing is attached" nothing
unload

insmod "$D/unknown/mthp_hook.ko"
is "a kernel without the callers that swap in is reported" said 'swap-in cannot be told from other page faults'
is "... by mthp_ext, too" lacks swapin
is "... which is no reason not to run" support 0 'module mthp_hook .*'
unload

echo always >/sys/kernel/mm/transparent_hugepage/enabled
tried() { # CODE FILE PATTERN
	/try.sh "$M" "$2" >$LOG 2>&1; code=$?
	cat $LOG; [ $code = "$1" ] && grep -qE "$3" $LOG && [ -z "$(ls -d /sys/fs/cgroup/mthp_try.* 2>/dev/null)" ]
}
is "a module that narrows nothing is found out" tried 1 "$D/blind/mthp_hook.ko" 'huge pages come although the policy forbids them'
is "... and unloaded" support 5 none
is "... and nothing is attached" nothing
echo never >/sys/kernel/mm/transparent_hugepage/enabled
is "where there are no huge pages none can be tried" tried 2 "$D/usual/mthp_hook.ko" 'enabled is not always'
echo always >/sys/kernel/mm/transparent_hugepage/enabled
is "the module works" tried 0 "$D/usual/mthp_hook.ko" 'it works'

is "the module is the carrier" support 0 'module mthp_hook .*'
is "... and the log says that it was loaded" said 'mthp_hook: loaded, version '
is "... which does without reclaim by design" designed
is "a second load is refused" refused "$D/usual/mthp_hook.ko" 'File exists'
is "... and the first stays" support 0 'module mthp_hook .*'
unload

mount -t securityfs none /sys/kernel/security 2>/dev/null
echo integrity >/sys/kernel/security/lockdown
is "a locked down kernel refuses it" refused "$D/usual/mthp_hook.ko" 'Lockdown: insmod: unsigned module loading is restricted'
is "... and mthp_ext says that there is no carrier" support 5 none
is "... but not that it was this one, where it is not installed" cause "mthp_hook is not installed" mthp-ext-dkms
echo updates/dkms/mthp_hook.ko.xz: >"$DEP"
is "... because of signatures" cause "locked down, as by secure boot" "mokutil --import"
echo Y >/sys/module/module/parameters/sig_enforce
is "a kernel that wants signatures refuses it" refused "$D/usual/mthp_hook.ko" 'Loading of unsigned module is rejected'
is "... and nothing is attached" nothing
echo "1..$N"
exit $BAD
