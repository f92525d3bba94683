import { quoted } from '../../src/api/ask.ts'
import type { End, Journey, Way } from './hand.ts'

// Walked is how a journey went.
export interface Walked {
  journey: Journey
  by: Way
  end: End | undefined
  said: string // by the command
  problem: string
  picture: string
}

const text = (s: string) => s.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')

// report is a page about journeys, with a row for each.
export function report(all: Journey[], walked: Walked[]): string {
  const rows = all.map((journey, n) => {
    const ways = walked.filter((w) => w.journey === journey)
    const passed = ways.map((w) => `${w.by}: ${w.problem ? `<strong>failed</strong><pre>${text(w.problem)}</pre>` : 'passed'}`).join('<br>') || 'not run'
    const figures = [...new Set(ways.map(({ end, said }) => (end ? `<strong>${text(end.shown)}</strong>, and the command's is ${text(said)}:<br><code>quartermaster ${text(end.command.map(quoted).join(' '))} -o json</code>, at <code>${text(end.at)}</code>` : '')))].join('<br>')
    const pictures = ways.map((w) => `<a href="${w.picture}"><img src="${w.picture}" width="320" loading="lazy" alt="Where the journey by ${w.by} ended"></a>`).join(' ')
    return `<tr><td>${n + 1}<td>${text(journey.person)}<td>${text(journey.job)}<td>${passed}<td>${figures}<td class="pictures">${pictures}`
  })
  const good = walked.filter((w) => !w.problem).length
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Journeys</title>
<style>
body { font: 1rem/1.5 system-ui, sans-serif; margin: 2rem }
table { border-collapse: collapse }
th, td { padding: .5rem; border-bottom: 1px solid #ccc; text-align: left; vertical-align: top; max-width: 28rem; overflow-wrap: anywhere }
td.pictures { max-width: none; white-space: nowrap }
pre { white-space: pre-wrap }
img { border: 1px solid #ccc }
</style>
<h1>Journeys</h1>
<p>${good} of ${walked.length} passed. Each ends in a figure on the screen that is the same as in the answer of the command. All data are generated.</p>
<table>
<thead><tr><th>#<th>who<th>what for<th>ways<th>the figure, and the command's<th>where it ended</thead>
<tbody>
${rows.join('\n')}
</tbody>
</table>
`
}
