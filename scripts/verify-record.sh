#!/bin/sh
# Verify an exported record without any of our programs: usage: verify-record.sh FILE (or - for stdin).
#
# Works on raw bytes with awk, sha256sum (or shasum) and base64. It checks what docs/formats/record.md says of a
# signed export: the one byte form of each line, hashes, sums, chain, forks, blobs, erasures, and that the head line
# is the last one and its note is about the last entry. It does not check the note's signature, nor that a body is
# JSON: the sum covers the body's bytes.
#
# Exit: 0 verified, 64 usage, 65 not a record, 66 no such file, 74 damaged. The first bad place is named on stderr.
set -eu
LC_ALL=C
export LC_ALL

fail() { # CODE MESSAGE
	printf 'verify-record: error: %s\n' "$2" >&2
	exit "$1"
}

[ $# -eq 1 ] || fail 64 "usage: verify-record.sh FILE"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
case $1 in
-) in=$tmp/in && cat >"$in" ;;
/*) in=$1 ;;
*) in=$PWD/$1 ;;
esac
[ -f "$in" ] && [ -r "$in" ] || fail 66 "$1: no such file"
cd "$tmp"
if command -v sha256sum >/dev/null; then sha=sha256sum; else sha='shasum -a 256'; fi

# awk would end a string at a NUL, or take a last line without its newline: such bytes are named here.
tr '\000' '\n' <"$in" >lines
if ! cmp "$in" lines >nul 2>&1; then
	fail 74 "line $(sed 's/.*line \([0-9]*\).*/\1/' nul): NUL byte"
fi
: >errors
: >hashed
: >base64
: >at-end
if [ -n "$(tail -c 1 "$in")" ]; then
	echo "$(($(wc -l <"$in") + 1)) no newline at the end" >>errors
fi

# First pass: everything but the hashes. What is to be hashed or decoded goes to files of its own; "hashed" lists
# line, expected digest, file and what it is; "base64" lists line and file; "at-end" holds what is wrong if the whole
# record was read.
awk '
function bad(why) {
	if (!failed) print NR, why >>"errors"
	failed = 1
}
function lit(s) {
	if (failed) return
	if (substr($0, at, length(s)) != s) { bad("want " s); return }
	at += length(s)
}
function next_is(s) { return substr($0, at, length(s)) == s }
function hex(n,   s) {
	if (failed) return ""
	s = substr($0, at, n)
	if (length(s) != n || s !~ /^[0-9a-f]+$/) { bad("want " n " lower-case hexadecimal digits"); return "" }
	at += n
	return s
}
function until(end, most,   s, n) {
	if (failed) return ""
	s = substr($0, at, most + 1)
	n = index(s, end)
	if (n == 0) { bad("want " end); return "" }
	at += n - 1
	return substr(s, 1, n - 1)
}
function number(   s) {
	if (failed) return ""
	s = substr($0, at, 17)
	if (!match(s, /^(0|[1-9][0-9]*)/)) { bad("want a number"); return "" }
	s = substr(s, 1, RLENGTH)
	if (length(s) > 16 || length(s) == 16 && (s "") > "9007199254740991") { bad("number over 2^53-1"); return "" }
	at += length(s)
	return s
}
function thread_id(   s) {
	s = until("\"", 40)
	if (!failed && (length(s) != 30 || s !~ /^thr_[0-9a-hjkmnp-tv-z]+$/)) bad("wrong thread id")
	return s
}
function put(name, text, digest, what) {
	if (failed) return
	name = NR name
	ORS = ""; print text >name; ORS = "\n"
	close(name)
	if (digest != "") print NR, digest, name, what >>"hashed"
	else print NR, name >>"base64"
}
function entry(   thread, seq, gen, time, kind, prev, sum, hash, header, salt, body) {
	lit("{\"v\":0,\"thread\":\""); thread = thread_id()
	lit("\",\"seq\":"); seq = number()
	lit(",\"gen\":"); gen = number()
	lit(",\"time\":\""); time = until("\"", 27)
	if (length(time) != 27 || time !~ /^[0-9][0-9][0-9][0-9]-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]+Z$/) bad("wrong time")
	lit("\",\"kind\":\""); kind = until("\"", 64)
	if (kind !~ /^[a-z]+\.[a-z]+$/) bad("wrong kind")
	lit("\",\"prev\":\""); prev = hex(64)
	lit("\",\"sum\":\""); sum = hex(64)
	lit("\"")
	header = substr($0, 1, at - 1) "}"
	lit(",\"hash\":\""); hash = hex(64)
	lit("\"")
	put(".header", header, hash, "header")
	if (!failed && next_is(",\"erased\":")) {
		lit(",\"erased\":"); body = ""; by = number()
		if ($0 != substr($0, 1, at - 1) "}") bad("want } and the end of the line")
		if (by + 0 <= seq + 0) bad("erased by an entry that is not later")
		if (kind == "thread.created" || kind == "thread.forked" || kind == "entry.erased") bad(kind " is erased")
		open_by[seq] = by; open_hash[seq] = hash; open_thread[seq] = thread; open_line[seq] = NR
	} else {
		lit(",\"salt\":\""); salt = hex(32)
		lit("\",\"body\":")
		body = substr($0, at, length($0) - at)
		if (substr(body, 1, 1) != "{" || substr(body, length(body)) != "}" || substr($0, length($0)) != "}") bad("body is not an object")
		if ($0 ~ /[\001-\037]/) bad("control character")
		put(".body", salt body, sum, "salt and body")
	}
	if (failed) return
	zero = prev ~ /^0+$/
	if (zero != (seq == "0")) bad("only seq 0 has no predecessor")
	if (entries == 0 && kind != "thread.created") bad("the first entry is not thread.created")
	if (entries > 0 && kind == "thread.created") bad("thread.created is not the first entry")
	if (entries == 0 ? seq != "0" : seq + 0 != last_seq + 1) bad("seq does not follow")
	if (entries > 0 && prev != last_hash) bad("prev is not the hash before")
	if (kind == "thread.forked") {
		if (thread == last_thread || body != "{\"parent\":\"" last_thread "\",\"seq\":" last_seq ",\"hash\":\"" last_hash "\"}") bad("fork of another entry")
	} else if (entries > 0 && thread != last_thread) bad("thread changes without a fork")
	if (entries > 0 && gen != last_gen && !(gen + 0 > last_gen + 0 && kind == "engine.started")) bad("gen changes without engine.started")
	blobs(body)
	if (kind == "entry.erased") erased(body, thread, seq)
	entries++
	last_thread = thread; last_seq = seq; last_hash = hash; last_gen = gen
}
function blobs(body,   s, name, fresh) {
	fresh = 0
	split("", mine)
	if (substr(body, 1, 10) == "{\"blobs\":[") {
		s = 11
		while (1) {
			name = substr(body, s, 73)
			if (name !~ /^"sha256:[0-9a-f]+"$/ || length(name) != 73 || name in mine) { bad("wrong list of blobs"); return }
			mine[name] = 1
			if (!(name in listed)) {
				listed[name] = 1
				if (name != carried[++fresh]) { bad("the blob lines before it are not those of its new blobs"); return }
			}
			s += 74
			if (substr(body, s - 1, 1) == "]") break
			if (substr(body, s - 1, 1) != ",") { bad("wrong list of blobs"); return }
		}
	}
	if (fresh != lines) bad("the blob lines before it are not those of its new blobs")
	lines = 0
	split("", carried)
}
function erased(body, thread, seq,   n, by, hash, inherited) {
	if (failed) return
	at = index($0, "\"body\":") + 7 # before it stand only fields without quotes inside
	lit("{\"seq\":"); n = number()
	lit(",\"hash\":\""); hash = hex(64)
	lit("\"")
	by = seq
	inherited = 0
	if (next_is(",\"by\":")) { lit(",\"by\":"); by = number(); inherited = by != "0" }
	lit(",\"reason\":\"")
	if (!inherited) by = seq
	if (failed || n + 0 >= seq + 0) { bad("it erases an entry that is not earlier"); return }
	if (n in open_by && open_by[n] == by && open_hash[n] == hash && (open_thread[n] == thread) == !inherited) delete open_by[n]
}
function blob(   d, data) {
	lit("{\"v\":0,\"blob\":\"sha256:"); d = hex(64)
	lit("\",\"data\":\"")
	data = substr($0, at, length($0) - at - 1)
	if (substr($0, length($0) - 1) != "\"}" || data !~ /^[A-Za-z0-9+\/]*=*$/) bad("wrong base64")
	carried[++lines] = "\"sha256:" d "\""
	put(".base64", data, "", "")
	if (!failed) print NR, d, NR ".base64.data", "blob" >>"hashed"
}
function head(   thread, seq, hash, prev, text, name, signature) {
	lit("{\"v\":0,\"head\":{\"thread\":\""); thread = thread_id()
	lit("\",\"seq\":"); seq = number()
	lit(",\"hash\":\""); hash = hex(64)
	lit("\",\"prev\":\""); prev = hex(64)
	lit("\"},\"note\":\"")
	text = "condensate.dev/head/v0\\n" thread "\\n" seq "\\n" hash "\\n" prev "\\n"
	if (!failed && !next_is(text)) bad("the note is about another head")
	lit(text); lit("\\n\342\200\224 ")
	name = until(" ", 200)
	if (name !~ /^[!-~]+$/ || name ~ /[+"\\]/) bad("wrong name of a key")
	lit(" ")
	signature = until("\\", 200)
	if (length(signature) < 8) bad("no signature")
	lit("\\n\"}")
	if (!failed && at != length($0) + 1) bad("want the end of the line")
	put(".base64", signature, "", "")
	if (lines > 0) bad("blob lines that no entry lists")
	if (thread != last_thread || seq != last_seq || hash != last_hash) bad("the head is not the last entry")
	signed = NR
}
{
	failed = 0; at = 1
	is_blob = substr($0, 1, 14) == "{\"v\":0,\"blob\":"
	if (length($0) + 1 > (is_blob ? 12582912 : 4194304)) bad("line is too long")
	if (signed) bad("line after the signed head")
	if (failed) next
	if (is_blob) blob()
	else if (substr($0, 1, 14) == "{\"v\":0,\"head\":") head()
	else if (substr($0, 1, 16) == "{\"v\":0,\"thread\":") entry()
	else bad(NR == 1 && substr($0, 1, 6) != "{\"v\":0" ? "not a record" : "neither entry nor blob nor head")
	if (failed) exit
}
END {
	if (NR == 0) print "0 not a record: it is empty" >>"errors"
	for (n in open_by) print open_line[n], "no entry.erased names it" >>"at-end"
	if (lines > 0) print NR, "blob lines that no entry lists" >>"at-end"
	if (!signed) print NR, "no signed head at the end" >>"at-end"
	print entries + 0, last_thread, last_seq, last_hash >"head"
}' "$in"

# Base64 has one form: what it decodes to gives the same text again.
while read -r line file; do
	if ! base64 -d <"$file" >"$file.data" 2>why || ! base64 <"$file.data" | tr -d '\n' | cmp -s - "$file"; then
		echo "$line base64 is not in its one form" >>errors
	fi
done <base64

# Second pass: all hashes, with as few processes as there can be.
cut -d ' ' -f 3 hashed | xargs $sha 2>/dev/null >sums || :
awk 'NR == FNR { sum[$2] = $1; next }
	sum[$3] != $2 { what = $0; sub(/^[^ ]+ [^ ]+ [^ ]+ /, "", what); print $1, "wrong hash of " what }' sums hashed >>errors

# What only the end shows counts when nothing else is wrong.
[ -s errors ] || cp at-end errors
if [ -s errors ]; then
	first=$(sort -n errors | head -n 1)
	case $first in
	*"not a record"*) fail 65 "line ${first%% *}: ${first#* }" ;;
	*) fail 74 "line ${first%% *}: ${first#* }" ;;
	esac
fi
read -r entries thread seq hash <head
echo "verified: $entries entries of $thread, head $seq $hash (signature not checked)"
