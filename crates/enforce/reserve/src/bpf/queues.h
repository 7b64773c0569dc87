// The queues of servers and CPUs, and the decisions about slices and preemption.
#pragma once

static struct control *the_control(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

static struct server *server_of(u32 index)
{
	return bpf_map_lookup_elem(&servers, &index);
}

static struct cpu *cpu_of(u32 index)
{
	return bpf_map_lookup_elem(&cpus, &index);
}

static u64 server_queue(u32 server)
{
	return 1 + server;
}

// The queue of a CPU for threads of soft gates outside of their slots.
static u64 rest_queue(u32 cpu)
{
	return 1 + MAX_SERVERS + cpu;
}

static bool is_soft(void)
{
	struct control *c = the_control();

	return c && c->is_soft;
}

static bool is_open(const struct server *server)
{
	return !server->is_gated || *(const volatile u32 *)&server->is_open;
}

// The slice equals that of SCHED_RR, and is shorter for threads of priority 0 and for threads
// outside of their slots.
static u64 slice_of(const struct server *server, bool rests)
{
	return server->priority && !rests ? 100000000ULL : 5000000ULL;
}

// Reports whether a thread of this server runs before the current thread of its CPU.
static bool preempts(const struct server *server, bool rests)
{
	struct cpu *cpu = cpu_of(server->cpu);
	u32 running = cpu ? cpu->running : 0;
	struct server *other = running ? server_of(running - 1) : 0;

	if (!other || rests)
		return false;
	return !is_open(other) || other->priority < server->priority;
}
