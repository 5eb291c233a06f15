#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# In a guest with a stock kernel, as root: modules that each break a rule of the contract; the test of that rule must
# fail.
#
# module-mutants.sh LAB_HOOK DIRECTORY NAME:TEST...	prints TAP; the modules are DIRECTORY/NAME.ko
HOOK=$1 D=$2 N=0 BAD=0
shift 2

gone() { # maps go a grace period after who held them
	for _ in $(seq 200); do rmmod mthp_hook 2>/dev/null && return 0; sleep 0.1; done
	return 1
}
for one; do
	name=${one%%:*} test=${one#*:} N=$((N + 1))
	insmod "$D/$name.ko" || { echo "not ok $N $name: cannot be loaded"; exit 1; }
	"$HOOK" contract "$test" >/tmp/contract.log 2>&1
	if grep -qE "^not ok [0-9]+ $test\$" /tmp/contract.log; then
		echo "ok $N $name: caught by $test"
	else
		sed 's/^/# /' /tmp/contract.log
		echo "not ok $N $name: survives $test"
		BAD=1
	fi
	gone || { echo "# it cannot be unloaded: those after it are not run"; exit 1; }
done
echo "1..$N"
exit $BAD
