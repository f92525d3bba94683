package access

import (
	"maps"
	"slices"

	"quartermaster/domain"
)

// OperationRule says who may ask a question.
type OperationRule struct {
	Roles []domain.Role
	// Within means that a right in any workspace is enough: the answer is about what the scope sees. Otherwise a right
	// in the root workspace is needed.
	Within bool
}

// Roles in the order of the table of rights.
var roles = []domain.Role{
	domain.RoleAdmin, domain.RoleFinance, domain.RolePlanner, domain.RoleAuditor, domain.RoleOperator, domain.RoleViewer,
}

// Roles returns the roles, in the order of the table of rights.
func Roles() []domain.Role { return slices.Clone(roles) }

func within(roles ...domain.Role) OperationRule { return OperationRule{roles, true} }

func estate(roles ...domain.Role) OperationRule { return OperationRule{roles, false} }

// operations are the questions and decisions, by the words of their commands. A test holds that each has a row.
var operations = func() map[string]OperationRule {
	const (
		admin, finance, planner     = domain.RoleAdmin, domain.RoleFinance, domain.RolePlanner
		auditor, operator, everyday = domain.RoleAuditor, domain.RoleOperator, domain.RoleViewer
	)
	return map[string]OperationRule{
		"access list":       estate(admin, auditor),
		"advice":            estate(admin, finance, planner, auditor, operator),
		"advice actions":    estate(admin, finance, planner, auditor, operator),
		"advice replay":     estate(admin, auditor, operator),
		"advice rules":      within(roles...),
		"advice score":      within(admin, finance, planner, auditor),
		"advice try":        estate(admin, planner, auditor, operator),
		"advice waste":      estate(admin, finance, planner, auditor),
		"alerts list":       within(roles...),
		"alerts show":       within(roles...),
		"audit access":      estate(admin, auditor),
		"audit trail":       within(admin, auditor),
		"archive status":    estate(admin, auditor, operator),
		"cluster list":      within(roles...),
		"costs":             within(admin, finance, planner, auditor, everyday),
		"costs accruals":    estate(admin, finance, auditor),
		"costs allocations": within(admin, finance, auditor),
		"costs budget":      within(admin, finance, planner, auditor, everyday),
		"costs claims":      estate(admin, finance, auditor),
		"costs close":       estate(admin, finance, auditor),
		"costs close show":  estate(admin, finance, auditor),
		"costs commitments": estate(admin, finance, planner, auditor),
		"costs explain":     within(admin, finance, auditor, everyday),
		"costs fx":          estate(admin, finance, auditor),
		"costs owned":       estate(admin, finance, auditor),
		"costs postings":    estate(admin, finance, auditor),
		"costs restate":     estate(admin, finance, auditor),
		"costs statement":   within(admin, finance, auditor, everyday),
		"costs tco":         estate(admin, finance, planner, auditor),
		"costs unit":        within(admin, finance, planner, auditor),
		"dead-letters list": estate(admin, auditor, operator),
		"decisions list":    estate(admin, auditor),
		"fleet":             within(roles...),
		"fleet map":         within(roles...),
		"focus rules":       within(admin, finance, auditor),
		"fragmentation":     estate(admin, planner, auditor, operator),
		"generation status": estate(admin, auditor, operator),
		"get":               within(roles...),
		"headroom":          estate(admin, planner, auditor, operator),
		"import list":       estate(admin, finance, auditor, operator),
		"import show":       estate(admin, finance, auditor, operator),
		"jobs":              within(roles...),
		"log event":         estate(admin, auditor, operator),
		"log prove":         estate(admin, auditor, operator),
		"log replay":        estate(admin, auditor, operator),
		"log stats":         estate(admin, auditor, operator),
		"log tail":          estate(admin, auditor, operator),
		"mapping list":      within(admin, finance, auditor, operator),
		"models":            within(roles...),
		"overview":          within(roles...),
		"parts list":        estate(admin, auditor, operator),
		"parts verify":      estate(admin, auditor, operator),
		"plan":              estate(admin, finance, planner),
		"plan backtest":     estate(admin, finance, planner),
		"plan evaluate":     estate(admin, finance, planner),
		"plan forecast":     estate(admin, finance, planner),
		"plan instance":     estate(admin, finance, planner),
		"plan list":         within(admin, finance, planner, auditor),
		"plan show":         within(admin, finance, planner, auditor),
		"plan solve":        within(admin, finance, planner), // of a file: it reads no rows
		"plan verify":       estate(admin, finance, planner, auditor),
		"quarantine list":   estate(admin, auditor, operator),
		"quarantine show":   estate(admin, auditor, operator),
		"recommend command": estate(admin, finance, planner, operator),
		"recommend list":    within(roles...),
		"recommend show":    within(roles...),
		"retention show":    estate(admin, finance, auditor, operator),
		"runbook":           within(roles...),
		"rules check":       estate(admin, finance, auditor),
		"serving":           within(roles...),
		"simulate":          estate(admin, finance, planner),
		"simulate changes":  estate(admin, finance, planner),
		"simulate check":    estate(admin, finance, planner),
		"simulate diff":     estate(admin, finance, planner, auditor),
		"simulate list":     within(admin, finance, planner, auditor),
		"simulate show":     within(admin, finance, planner, auditor),
		"simulate verify":   estate(admin, finance, planner, auditor),
		"snapshot list":     estate(admin, auditor, operator),
		"streams list":      estate(admin, auditor, operator),
		"usage":             within(roles...),
		"usage course":      within(roles...),

		// What changes something. A decision needs a key of an operator who may sign it, too.
		"access end-sessions": estate(admin, operator),
		"access grant":        within(admin),
		"access key issue":    within(admin),
		"access key revoke":   within(admin),
		"access revoke":       within(admin),
		"alerts ack":          within(admin, planner, operator),
		"alerts silence":      within(admin, planner, operator),
		"apply":               within(admin, finance, planner, auditor, operator),
		"cluster register":    estate(admin, operator),
		"commitment end":      estate(admin, finance),
		"commitment renew":    estate(admin, finance),
		"costs close approve": estate(admin, finance),
		"costs close prepare": estate(admin, finance),
		"deployments declare": within(admin, operator),
		"key revoke":          estate(admin, operator),
		"key rotate":          estate(admin, operator),
		"node drain":          estate(admin, operator),
		"node retire":         estate(admin, operator),
		"node return":         estate(admin, operator),
		"operator add":        within(admin),
		"operator revoke":     estate(admin),
		"quarantine discard":  estate(admin, operator),
		"recommend actuated":  within(admin, finance, planner, operator),
		"recommend approve":   within(admin, finance, planner),
		"recommend propose":   within(admin, finance, planner, operator),
		"recommend reject":    within(admin, finance, planner),
		"recommend withdraw":  within(admin, finance, planner),
		"streams resolve":     estate(admin, operator),
	}
}()

// Operations returns the table of rights: who may ask which question, and propose which decision, by the words of its command.
func Operations() map[string]OperationRule { return maps.Clone(operations) }
