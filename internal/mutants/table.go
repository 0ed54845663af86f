package main

const store = "adapters/pebblestore/"

var mutants = []mutant{
	{
		name: "store: acknowledge without a sync", file: store + "commit.go",
		old: "s.db.Apply(batch, pebble.Sync)", new: "s.db.Apply(batch, pebble.NoSync)",
		tests: []string{"TestAckedMeansSynced", "TestSyncNumbers", "TestPowerFailure", "TestPowerFailureUnderLoad"},
	},
	{
		name: "store: sync again after a failed sync", file: store + "failstop.go",
		old:   `return f.check("sync", f.File.SyncData())`,
		new:   `if f.File.SyncData() == nil { return nil }; return f.File.SyncData()`,
		tests: []string{"TestFailedSyncFailsAllWaiters", "TestFailNth"},
	},
	{
		name: "store: ignore a failed sync", file: store + "failstop.go",
		old:   `return f.check("sync", f.File.SyncData())`,
		new:   `_ = f.File.SyncData(); return nil`,
		tests: []string{"TestFailedSyncFailsAllWaiters", "TestFailNth", "TestInterruptedImport"},
	},
	{
		name: "store: leave errors of the log to Pebble", file: store + "open.go",
		old: "failstop{s.fs, s.health}", new: "s.fs",
		tests: []string{"TestFailNth"},
	},
	{
		name: "store: go on after a failed flush", file: store + "health.go",
		old: "h.latch(err)\n\t\t\ttime", new: "time",
		tests: []string{"TestFullDiskBehindTheScenes"},
	},
	{
		name: "store: show what is not acknowledged", file: store + "append.go",
		old: "fresh, err := s.fresh(entries)", new: "st.ack(next)\n\tfresh, err := s.fresh(entries)",
		tests: []string{"TestNothingIsSeenBeforeItsSync"},
	},
	{
		name: "store: append whatever the head is", file: store + "append.go",
		old: "now.head != expect || entries", new: "false && now.head != expect || entries",
		tests: []string{"TestStore"},
	},
	{
		name: "store: give the turn back while the disk is busy", file: store + "append.go",
		old: "\terr = s.commit(ctx", new: "\tst.release()\n\tst = &state{turn: make(chan struct{}, 1)}\n\terr = s.commit(ctx",
		tests: []string{"TestNothingIsSeenBeforeItsSync"},
	},
	{
		name: "store: tell a head that may still be overtaken", file: store + "read.go",
		old: "st == nil || !st.doubted.Load()", new: "st == nil || st != nil",
		tests: []string{"TestHeadDecides"},
	},
	{
		name: "store: do not sync the folders above a new store", file: store + "open.go",
		old: "errors.Join(parent.Sync(), parent.Close())", new: "parent.Close()",
		tests: []string{"TestPowerFailureAtOpen"},
	},
	{
		name: "store: keep what interrupted imports left", file: store + "open.go",
		old: "return s.sweepImports()", new: "return nil",
		tests: []string{"TestInterruptedImport/power"},
	},
	{
		name: "store: make an import visible chunk by chunk", file: store + "import.go",
		old: "\tputEntry(m.batch, &e)\n", new: "\tputEntry(m.batch, &e)\n\tputMark(m.batch, p.id, p.next)\n",
		tests: []string{"TestInterruptedImport"},
	},
	{
		name: "store: open what a newer version wrote", file: store + "open.go",
		old: "case schema > newest:", new: "case schema > newest+1:",
		tests: []string{"TestForeignFolders"},
	},
	{
		name: "store: read a broken chain", file: store + "read.go",
		old: "(e.Seq != last.Next() || e.Prev != last.Hash)", new: "false",
		tests: []string{"TestTamper"},
	},
	{
		name: "store: take the lock of another process", file: store + "open.go",
		old: "case !isHeld(err):", new: "case isHeld(err):\n\t\t\treturn new(pebble.Lock), nil\n\t\tcase !isHeld(err):",
		tests: []string{"TestTwoProcesses"},
	},
}
