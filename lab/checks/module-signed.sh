#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# In a guest with a stock kernel that was booted with module.sig_enforce=1, as root: a module without a signature is
# refused, and mthp_ext says why.
#
# module-signed.sh MTHP_EXT MODULE.ko	prints TAP
M=$1 KO=$2 N=0 BAD=0
LOG=/tmp/signed.log

is() { # NAME COMMAND...: a test
	name=$1; shift; N=$((N + 1))
	if "$@" >/tmp/is.log 2>&1; then echo "ok $N $name"; else { cat /tmp/is.log; dmesg | tail -5; } | sed 's/^/# /'; echo "not ok $N $name"; BAD=1; fi
}
refused() { # PATTERN...: it is not loaded; insmod and the kernel's log say so in these words
	insmod "$KO" >$LOG 2>&1 && return 1
	dmesg >>$LOG
	cat $LOG
	for one; do grep "$one" $LOG || return 1; done
}
cause() { # CAUSE REMEDY: why there is no carrier, and what to do; patterns
	$M support >$LOG 2>&1; code=$?
	cat $LOG; [ $code = 5 ] && grep -qx "carrier: none" $LOG && grep -E "^  cause: .*$1" $LOG && grep -E "^  remedy: .*$2" $LOG
}

is "the kernel wants signatures" grep -qx Y /sys/module/module/parameters/sig_enforce
DEP=/lib/modules/$(uname -r)/modules.dep
mkdir -p "${DEP%/*}"
is "before it is tried, the module is not installed" cause "mthp_hook is not installed" mthp-ext-dkms
is "a module without a signature is refused" refused 'Loading of unsigned module is rejected' 'ey was rejected by service'
echo updates/dkms/mthp_hook.ko.xz: >"$DEP"
is "... and mthp_ext says why" cause "signed modules only .module.sig_enforce." "mokutil --import /var/lib/dkms/mok.pub"
echo 1 >/proc/sys/kernel/modules_disabled
is "a kernel that loads no more modules is told from that" cause "kernel.modules_disabled is 1" "boot, and run .modprobe mthp_hook"
echo "1..$N"
exit $BAD
