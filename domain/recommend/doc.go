// Package recommend proposes what to do about findings: each proposal with its saving, evidence, risk, and the money and
// machines that it is about.
//
// [Make] is a pure function of an [Estate]. Package house checks what it makes by rules of its own, from the policies as
// they were declared. [Select] keeps those that keep the rules, and of several about the same machines or money the best.
//
// What always holds:
//
//   - The id of a recommendation is a digest of what it proposes to whom, so that tomorrow's run repeats none.
//   - It touches one cluster, or says why more.
//   - The savings of selected recommendations add up: no GPU time and no money is saved twice, and a workspace never saves
//     more than it pays.
//   - One that breaks a rule of the house is listed as refused, with the name of the policy.
package recommend

// Method is the version of how recommendations are made and selected.
const Method = "recommend/1"
