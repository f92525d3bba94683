package app

import (
	"cmp"
	"slices"
	"strings"

	"quartermaster/domain/attribution"
)

// CreditNote changes what an earlier final statement asks for, in one currency. A final statement is never written again
// with other figures: only notes that name it cancel it, in whole or in part. A note belongs to the statement of the
// period that the corrections are posted into, and is final with it.
type CreditNote struct {
	Number   string   `json:"number"`
	Kind     NoteKind `json:"kind"`
	Corrects string   `json:"corrects"` // number of the statement that it cancels
	Currency string   `json:"currency"`
	// Amount is the sum of Corrections in minor units: negative on a credit note, positive on a debit note. It is rounded
	// once for each invoice, so that the notes of all workspaces add up to what was posted about it.
	Amount      attribution.Minor     `json:"amount"`
	Corrections []StatementCorrection `json:"corrections"`
}

// NoteKind says in whose favour a note is.
type NoteKind string

// The kinds of notes.
const (
	NoteCredit NoteKind = "credit_note"
	NoteDebit  NoteKind = "debit_note"
)

// note makes a note for each statement and currency whose corrections do not round to zero, and what is due. amounts are
// those of notes, by the number of the statement and currency.
func (s *CostStatement) note(amounts map[[2]string]attribution.Minor) {
	s.Notes, s.Due = []CreditNote{}, []Due{}
	due := map[string]attribution.Minor{}
	for i := range s.Totals {
		due[s.Totals[i].Currency] = s.Totals[i].BilledMinor
	}
	for of, amount := range amounts {
		if have, ok := due[of[1]]; ok {
			due[of[1]] = have.Add(amount)
		} else {
			due[of[1]] = amount
		}
		if amount.Amount.IsZero() {
			continue
		}
		n := CreditNote{Kind: NoteDebit, Corrects: of[0], Currency: of[1], Amount: amount}
		if amount.Amount.Sign() < 0 {
			n.Kind = NoteCredit
		}
		kind, _, _ := strings.Cut(string(n.Kind), "_")
		month, _, _ := strings.Cut(n.Corrects, "/")
		n.Number = s.Number + "/" + kind + "-" + month + "-" + n.Currency
		for i := range s.Corrections {
			if c := &s.Corrections[i]; c.Corrects == n.Corrects && c.Currency == n.Currency {
				n.Corrections = append(n.Corrections, *c)
			}
		}
		s.Notes = append(s.Notes, n)
	}
	slices.SortFunc(s.Notes, func(a, b CreditNote) int {
		return cmp.Or(strings.Compare(a.Corrects, b.Corrects), strings.Compare(a.Currency, b.Currency))
	})
	for currency, amount := range due {
		s.Due = append(s.Due, Due{currency, amount})
	}
	slices.SortFunc(s.Due, func(a, b Due) int { return strings.Compare(a.Currency, b.Currency) })
}

// Due is what a statement asks for in a currency.
type Due struct {
	Currency string            `json:"currency"`
	Amount   attribution.Minor `json:"amount"`
}
