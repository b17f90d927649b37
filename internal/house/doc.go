// Package house holds no code. Its tests keep the rules that make the module one house: who may import whom, that every
// exported name is documented, that packages keep no state and start nothing by themselves, where secrets are revealed, and
// that links in the documentation lead somewhere.
//
// Each rule stands with its reason beside it. When a test here fails, change the code. A rule or table is edited only when
// the design itself changes, never to make a build pass.
package house
