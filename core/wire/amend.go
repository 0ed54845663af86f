package wire

import (
	"fmt"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// Amendments are what later entries say about how earlier ones are rendered.
type Amendments struct {
	repairs map[place]thread.HistoryRepaired
	undone  []thread.StepUndone
}

// place names one block of one entry.
type place struct {
	seq   record.Seq
	block int
}

// Add takes note of e when it amends; every other kind is ignored. When two repairs name the same block, the later
// one counts. The repair drop-result is about an entry, so its block does not matter.
func (a *Amendments) Add(e record.Entry) error {
	switch e.Kind {
	case record.HistoryRepaired, record.StepUndone:
	default:
		return nil
	}
	if e.Body == nil {
		return fmt.Errorf("entry %d (%s) is erased: %w", e.Seq, e.Kind, ErrUnprovable)
	}
	if e.Kind == record.StepUndone {
		undone, err := thread.Decode[thread.StepUndone](e)
		if err == nil {
			a.undone = append(a.undone, undone)
		}
		return err
	}
	repair, err := thread.Decode[thread.HistoryRepaired](e)
	if err != nil {
		return err
	}
	if a.repairs == nil {
		a.repairs = make(map[place]thread.HistoryRepaired)
	}
	a.repairs[placeOf(repair)] = repair
	return nil
}

func placeOf(r thread.HistoryRepaired) place {
	if r.Repair == thread.RepairDropResult {
		return place{r.Target, -1}
	}
	return place{r.Target, r.Block}
}

// Undone says whether the entry at seq is no longer part of the conversation.
func (a *Amendments) Undone(seq record.Seq) bool {
	for _, u := range a.undone {
		if u.From <= seq && seq <= u.To {
			return true
		}
	}
	return false
}

// Repair returns the repair of a block of the entry at seq.
func (a *Amendments) Repair(seq record.Seq, block int) (thread.HistoryRepaired, bool) {
	if len(a.repairs) == 0 {
		return thread.HistoryRepaired{}, false
	}
	r, ok := a.repairs[place{seq, block}]
	return r, ok
}

// ResultDropped says whether the tool result in the entry at seq is left out.
func (a *Amendments) ResultDropped(seq record.Seq) bool {
	_, ok := a.Repair(seq, -1)
	return ok
}
