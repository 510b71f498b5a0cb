// Written by `nono agent install opencode`: each tool call becomes a step (nono steps).
// `nono agent uninstall opencode` removes this file.
import { spawn } from "node:child_process"

const PROGRAM = __PROGRAM__

// Never throws, and never waits longer than the hook's own deadline. Gives what the hook printed.
function tell(event) {
  return new Promise((resolve) => {
    try {
      const hook = spawn(PROGRAM, ["hook", "opencode"], { stdio: ["pipe", "pipe", "ignore"] })
      const timer = setTimeout(resolve, 5000)
      let said = ""
      hook.stdout.on("data", (data) => { if (said.length < 65536) said += data })
      hook.stdout.on("error", () => {})
      const done = () => { clearTimeout(timer); resolve(said) }
      hook.on("error", done)
      hook.on("close", done)
      hook.stdin.on("error", () => {})
      hook.stdin.end(JSON.stringify(event))
    } catch {
      resolve()
    }
  })
}

export const Nono = async ({ directory, worktree }) => {
  const cwd = directory || worktree
  const about = (hook_event_name, session_id, more) => ({ hook_event_name, session_id, cwd, ...more })
  // A subagent is a session of its own: its calls belong to the session above.
  const parents = new Map()
  const top = (id) => {
    let seen = 0
    while (parents.has(id) && seen++ < 32) id = parents.get(id)
    return id
  }
  const of = (id) => (top(id) === id ? {} : { agent_id: id })
  return {
    event: async ({ event }) => {
      const info = event?.properties?.info
      if (event?.type === "session.created" && info?.parentID) parents.set(info.id, info.parentID)
      if (event?.type === "session.created" && info?.id && !info.parentID)
        await tell(about("SessionStart", info.id))
      const idle = event?.type === "session.idle" && event.properties?.sessionID
      if (idle)
        await tell(top(idle) === idle ? about("Stop", idle) : about("SubagentStop", top(idle), of(idle)))
      if (event?.type === "session.deleted" && info?.id && !info.parentID)
        await tell(about("SessionEnd", info.id))
    },
    "chat.message": async (input, output) => {
      const id = input?.sessionID ?? output?.message?.sessionID
      if (!id || top(id) !== id) return
      const parts = output?.parts ?? []
      const prompt = parts.filter((part) => part?.type === "text" && !part.synthetic).map((part) => part.text).join("\n")
      const said = await tell(about("UserPromptSubmit", id, { prompt }))
      try {
        const text = said && JSON.parse(said)?.hookSpecificOutput?.additionalContext
        const last = parts.at(-1)
        // A part of its own: ids sort, and a synthetic part is not shown as the person's.
        if (text && last) parts.push({ ...last, id: last.id + "0", type: "text", synthetic: true, text })
      } catch {}
    },
    "tool.execute.before": async (input, output) => {
      await tell(about("PreToolUse", top(input.sessionID), {
        tool_name: input.tool, tool_use_id: input.callID, tool_input: output?.args ?? {}, ...of(input.sessionID),
      }))
    },
    "tool.execute.after": async (input, output) => {
      await tell(about("PostToolUse", top(input.sessionID), {
        tool_name: input.tool, tool_use_id: input.callID, tool_input: input.args ?? output?.args ?? {}, ...of(input.sessionID),
      }))
    },
  }
}
